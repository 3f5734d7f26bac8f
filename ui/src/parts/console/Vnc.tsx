import RFB from '@novnc/novnc';
import { useEffect, useImperativeHandle, useRef, type Ref } from 'react';
import { typeText } from './keysyms';

export interface VncControls {
  ctrlAltDel: () => void;
  /** Types a text: that works in every guest, also before it has booted. */
  type: (text: string) => void;
  focus: () => void;
}

interface VncProps {
  /** Without host, as `/apis/…/vnc`. */
  path: string;
  scale: boolean;
  onState: (state: 'connected' | 'ended') => void;
  controls: Ref<VncControls>;
}

/** The screen of a machine. */
export function Vnc({ path, scale, onState, controls }: VncProps) {
  const host = useRef<HTMLDivElement>(null);
  const screen = useRef<RFB | null>(null);
  const report = useRef(onState);
  report.current = onState;

  useEffect(() => {
    if (!host.current) return;
    const rfb = new RFB(host.current, `wss://${window.location.host}${path}`, { shared: true, wsProtocols: ['plain.kubevirt.io'] });
    rfb.background = 'transparent';
    rfb.scaleViewport = true;
    rfb.focusOnClick = true;
    rfb.addEventListener('connect', () => {
      report.current('connected');
      rfb.focus();
    });
    rfb.addEventListener('disconnect', () => report.current('ended'));
    screen.current = rfb;
    return () => {
      screen.current = null;
      rfb.disconnect();
    };
  }, [path]);

  useEffect(() => {
    if (!screen.current) return;
    screen.current.scaleViewport = scale;
    screen.current.clipViewport = !scale;
  }, [scale, path]);

  useImperativeHandle(controls, () => ({
    ctrlAltDel: () => screen.current?.sendCtrlAltDel(),
    type: (text) => {
      if (screen.current) typeText(text, (keysym, down) => screen.current?.sendKey(keysym, null, down));
    },
    focus: () => screen.current?.focus(),
  }));

  return <div ref={host} style={{ width: '100%', height: '100%' }} data-console="vnc" />;
}
