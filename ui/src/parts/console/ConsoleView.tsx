import { ActionIcon, Button, Group, SegmentedControl, Stack, Text, Textarea, Tooltip } from '@mantine/core';
import { useFullscreenElement } from '@mantine/hooks';
import { IconArrowsMaximize, IconArrowsMinimize, IconClipboard, IconKeyboard, IconZoomScan } from '@tabler/icons-react';
import { lazy, Suspense, useRef, useState } from 'react';
import { subresource } from '@/api/client';
import type { KubeObject } from '@/api/types';
import { StatusBadge } from '../StatusBadge';
import { t } from '@/i18n';
import { openDialog } from '../dialogs';
import { FormDialog } from '../form/FormDialog';
import { Loading } from '../States';
import classes from './Console.module.css';
import type { VncControls } from './Vnc';

const Vnc = lazy(() => import('./Vnc').then((module) => ({ default: module.Vnc })));
const Serial = lazy(() => import('./Serial').then((module) => ({ default: module.Serial })));

export type ConsoleKind = 'vnc' | 'serial';

interface ConsoleViewProps {
  instance: KubeObject;
  kind: ConsoleKind;
  onKind: (kind: ConsoleKind) => void;
}

/** Both consoles of a running machine, one at a time. */
export function ConsoleView({ instance, kind, onKind }: ConsoleViewProps) {
  const [attempt, setAttempt] = useState(0);
  const [state, setState] = useState<'connecting' | 'connected' | 'ended'>('connecting');
  const [scale, setScale] = useState(true);
  const controls = useRef<VncControls>(null);
  const { ref: frame, toggle, fullscreen } = useFullscreenElement<HTMLDivElement>();
  const path = subresource('virtualmachineinstances', instance, kind === 'vnc' ? 'vnc' : 'console');

  const reconnect = () => {
    setState('connecting');
    setAttempt(attempt + 1);
  };
  const choose = (next: string) => {
    setState('connecting');
    onKind(next as ConsoleKind);
  };
  const paste = () => openDialog((close) => <PasteDialog onClose={close} onPaste={(text) => controls.current?.type(text)} />);
  const tone = { connecting: 'busy', connected: 'ok', ended: 'bad' } as const;

  return (
    <div className={classes.frame} ref={frame}>
      <div className={classes.bar}>
        <SegmentedControl size="xs" value={kind} onChange={choose} data={[{ value: 'vnc', label: t('machines.graphical') }, { value: 'serial', label: t('machines.serial') }]} />
        <StatusBadge tone={tone[state]} label={t(`console.${state}`)} />
        <span className={classes.grow} />
        {kind === 'vnc' && (
          <>
            <Button size="xs" variant="default" leftSection={<IconKeyboard size={15} />} disabled={state !== 'connected'} onClick={() => controls.current?.ctrlAltDel()}>Ctrl Alt Del</Button>
            <Button size="xs" variant="default" leftSection={<IconClipboard size={15} />} disabled={state !== 'connected'} onClick={paste}>{t('console.paste')}</Button>
            <Tooltip label={scale ? t('console.realSize') : t('console.fit')}>
              <ActionIcon variant={scale ? 'light' : 'default'} size={30} aria-label={t('console.fit')} aria-pressed={scale} onClick={() => setScale(!scale)}><IconZoomScan size={16} /></ActionIcon>
            </Tooltip>
          </>
        )}
        <Tooltip label={fullscreen ? t('console.window') : t('console.fullScreen')}>
          <ActionIcon variant="default" size={30} aria-label={t('console.fullScreen')} onClick={() => void toggle()}>{fullscreen ? <IconArrowsMinimize size={16} /> : <IconArrowsMaximize size={16} />}</ActionIcon>
        </Tooltip>
      </div>
      <div className={classes.screen}>
        <Suspense fallback={<Loading />}>
          {kind === 'vnc' ? <Vnc key={attempt} path={path} scale={scale} onState={setState} controls={controls} /> : <Serial key={attempt} path={path} onState={setState} />}
        </Suspense>
        {state === 'ended' && (
          <div className={classes.veil}>
            <Stack align="center">
              <Text>{t('console.endedHelp')}</Text>
              <Group><Button onClick={reconnect}>{t('console.reconnect')}</Button></Group>
            </Stack>
          </div>
        )}
      </div>
      {kind === 'serial' && state === 'connected' && <Text size="xs" c="#9aa6a2" px="sm" pb={6}>{t('console.serialHint')}</Text>}
    </div>
  );
}

function PasteDialog({ onClose, onPaste }: { onClose: () => void; onPaste: (text: string) => void }) {
  const [text, setText] = useState('');
  const run = () => {
    onPaste(text);
    return Promise.resolve();
  };
  return (
    <FormDialog title={t('console.paste')} onClose={onClose} run={run} submitLabel={t('console.type')} incomplete={text === ''}>
      <Textarea label={t('console.pasteText')} description={t('console.pasteHelp')} autosize minRows={4} maxRows={12} data-autofocus value={text} onChange={(event) => setText(event.currentTarget.value)} />
    </FormDialog>
  );
}
