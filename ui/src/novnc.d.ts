/** The parts of noVNC that the page uses; it comes without types. */
declare module '@novnc/novnc' {
  interface RfbEvents {
    connect: CustomEvent;
    disconnect: CustomEvent<{ clean: boolean }>;
    clipboard: CustomEvent<{ text: string }>;
    securityfailure: CustomEvent<{ status: number; reason: string }>;
    desktopname: CustomEvent<{ name: string }>;
  }

  // oxlint-disable-next-line import/no-default-export
  export default class RFB extends EventTarget {
    constructor(target: HTMLElement, urlOrChannel: string | WebSocket, options?: { shared?: boolean; wsProtocols?: string[] });
    scaleViewport: boolean;
    resizeSession: boolean;
    clipViewport: boolean;
    viewOnly: boolean;
    background: string;
    focusOnClick: boolean;
    focus(options?: FocusOptions): void;
    disconnect(): void;
    sendCtrlAltDel(): void;
    sendKey(keysym: number, code: string | null, down?: boolean): void;
    clipboardPasteFrom(text: string): void;
    addEventListener<K extends keyof RfbEvents>(type: K, listener: (event: RfbEvents[K]) => void): void;
  }
}
