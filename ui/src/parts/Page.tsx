import { Link } from '@tanstack/react-router';
import { useEffect, type ReactNode } from 'react';
import classes from './Page.module.css';

interface PageHeadProps {
  title: string;
  /** The list that this screen belongs to. */
  parent?: { title: string; to: string };
  meta?: ReactNode;
  actions?: ReactNode;
}

/** The head of every screen; it also names the browser's tab. */
export function PageHead({ title, parent, meta, actions }: PageHeadProps) {
  useEffect(() => {
    document.title = `${title} – Croft`;
  }, [title]);
  return (
    <header className={classes.head}>
      <div className={classes.titles}>
        {parent && <div className={classes.crumb}><Link to={parent.to}>{parent.title}</Link> /</div>}
        <h1 className={classes.title} style={{ margin: 0 }}>{title}</h1>
        {meta && <div className={classes.meta}>{meta}</div>}
      </div>
      {actions}
    </header>
  );
}

/** A box with a heading. */
export function Card({ title, actions, children, className }: { title?: string; actions?: ReactNode; children: ReactNode; className?: string }) {
  return (
    <section className={`${classes.card} ${className ?? ''}`}>
      {(title || actions) && (
        <div className={classes.cardHead}>
          <h2 className={classes.cardTitle}>{title}</h2>
          {actions}
        </div>
      )}
      {children}
    </section>
  );
}
