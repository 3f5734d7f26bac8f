import '@xterm/xterm/css/xterm.css';
import { FitAddon } from '@xterm/addon-fit';
import { Terminal } from '@xterm/xterm';
import { useEffect, useRef } from 'react';

interface SerialProps {
  /** Without host, as `/apis/…/console`. */
  path: string;
  onState: (state: 'connected' | 'ended') => void;
}

/** The serial console of a machine. */
export function Serial({ path, onState }: SerialProps) {
  const host = useRef<HTMLDivElement>(null);
  const report = useRef(onState);
  report.current = onState;

  useEffect(() => {
    if (!host.current) return;
    const terminal = new Terminal({
      fontFamily: "ui-monospace, 'SFMono-Regular', Menlo, Consolas, 'DejaVu Sans Mono', monospace",
      fontSize: 14,
      // Some fonts have their underscores below the line.
      lineHeight: 1.15,
      cursorBlink: true,
      scrollback: 5_000,
      theme: { background: '#0f1413', foreground: '#d8dedb', cursor: '#8ec2b0' },
      screenReaderMode: true,
    });
    const fit = new FitAddon();
    terminal.loadAddon(fit);
    terminal.open(host.current);
    fit.fit();
    const resized = new ResizeObserver(() => fit.fit());
    resized.observe(host.current);

    const socket = new WebSocket(`wss://${window.location.host}${path}`, ['plain.kubevirt.io']);
    socket.binaryType = 'arraybuffer';
    const encoder = new TextEncoder();
    const typed = terminal.onData((data) => {
      if (socket.readyState === WebSocket.OPEN) socket.send(encoder.encode(data));
    });
    socket.onopen = () => {
      report.current('connected');
      terminal.focus();
    };
    socket.onmessage = (event: MessageEvent<ArrayBuffer | string>) => terminal.write(typeof event.data === 'string' ? event.data : new Uint8Array(event.data));
    socket.onclose = () => report.current('ended');

    return () => {
      socket.onclose = null;
      socket.close();
      typed.dispose();
      resized.disconnect();
      terminal.dispose();
    };
  }, [path]);

  return <div ref={host} style={{ width: '100%', height: '100%' }} data-console="serial" />;
}
