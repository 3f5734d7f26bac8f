import { Menu } from '@mantine/core';
import { IconDotsVertical } from '@tabler/icons-react';
import { useState, type ReactNode } from 'react';
import classes from './LazyMenu.module.css';

interface LazyMenuProps {
  label: string;
  large?: boolean;
  /** What is in it; made when it is opened. */
  children: () => ReactNode;
}

/** Three dots with a menu behind them. Until it is used it is a plain button: every row of a table has one. */
export function LazyMenu({ label, large, children }: LazyMenuProps) {
  const [used, setUsed] = useState(false);
  const [opened, setOpened] = useState(false);
  const dots = (
    <button
      type="button"
      className={classes.dots}
      data-large={large || undefined}
      aria-label={label}
      aria-haspopup="menu"
      aria-expanded={opened}
      onClick={() => {
        setUsed(true);
        setOpened(!opened);
      }}
    >
      <IconDotsVertical size={17} />
    </button>
  );
  if (!used) return dots;
  return (
    <Menu opened={opened} onChange={setOpened} width={220}>
      {/* The button itself opens it, before and after there is a menu. */}
      <Menu.Target>{dots}</Menu.Target>
      {opened && <Menu.Dropdown>{children()}</Menu.Dropdown>}
    </Menu>
  );
}
