import { ActionIcon, Code, CopyButton, Stack, Tabs, Text, Tooltip, UnstyledButton } from '@mantine/core';
import { IconCheck, IconChevronRight, IconCopy } from '@tabler/icons-react';
import { useState } from 'react';
import { t } from '@/i18n';
import { toYaml } from '../yaml/document';
import classes from './Preview.module.css';

interface PreviewProps {
  /** What the form sends, one document each. */
  objects?: readonly unknown[];
  /** The same by command. */
  command?: string;
}

/** What a form stands for: nothing that it does is out of reach of kubectl. */
export function Preview({ objects, command }: PreviewProps) {
  const [open, setOpen] = useState(false);
  const tabs = [
    objects && objects.length > 0 ? { id: 'yaml', label: t('common.asYaml'), text: objects.map(toYaml).join('---\n') } : null,
    command ? { id: 'command', label: t('common.asCommand'), text: command } : null,
  ].filter((tab) => tab !== null);
  if (tabs.length === 0) return null;
  return (
    <div className={classes.preview}>
      <UnstyledButton className={classes.toggle} onClick={() => setOpen(!open)} aria-expanded={open}>
        <IconChevronRight size={15} className={classes.chevron} data-open={open || undefined} aria-hidden />
        <Text size="sm">{tabs.map((tab) => tab.label).join(' · ')}</Text>
      </UnstyledButton>
      {open && (
        <Tabs defaultValue={tabs[0]?.id ?? null} variant="pills" keepMounted={false}>
          {tabs.length > 1 && (
            <Tabs.List mb="xs">{tabs.map((tab) => <Tabs.Tab key={tab.id} value={tab.id} size="xs">{tab.label}</Tabs.Tab>)}</Tabs.List>
          )}
          {tabs.map((tab) => (
            <Tabs.Panel key={tab.id} value={tab.id}><CopyableCode text={tab.text} /></Tabs.Panel>
          ))}
        </Tabs>
      )}
    </div>
  );
}

export function CopyableCode({ text }: { text: string }) {
  return (
    <Stack className={classes.code}>
      <Code block className={classes.block}>{text}</Code>
      <CopyButton value={text}>
        {({ copied, copy }) => (
          <Tooltip label={copied ? t('common.copied') : t('common.copy')}>
            <ActionIcon className={classes.copy} variant="default" size="sm" onClick={copy} aria-label={t('common.copy')}>
              {copied ? <IconCheck size={14} /> : <IconCopy size={14} />}
            </ActionIcon>
          </Tooltip>
        )}
      </CopyButton>
    </Stack>
  );
}
