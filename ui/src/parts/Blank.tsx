import { Text, Title } from '@mantine/core';
import type { Icon } from '@tabler/icons-react';
import type { ReactNode } from 'react';
import classes from './Blank.module.css';

interface BlankProps {
  icon: Icon;
  title: string;
  text?: string;
  children?: ReactNode;
}

/** A screen or a part of one that has nothing to show, and says why and what to do. */
export function Blank({ icon: Symbol, title, text, children }: BlankProps) {
  return (
    <div className={classes.blank}>
      <span className={classes.icon}><Symbol size={28} stroke={1.5} aria-hidden /></span>
      <Title order={2} size="h4">{title}</Title>
      {text && <Text className={classes.text}>{text}</Text>}
      {children}
    </div>
  );
}
