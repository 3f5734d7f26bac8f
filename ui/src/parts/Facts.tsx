import { Fragment, type ReactNode } from 'react';
import classes from './Facts.module.css';

export type Fact = [label: string, value: ReactNode];

/** Labels and values; what has no value is left out. */
export function Facts({ facts }: { facts: readonly Fact[] }) {
  const known = facts.filter(([, value]) => value !== undefined && value !== null && value !== '' && value !== false);
  return (
    <dl className={classes.facts}>
      {known.map(([label, value]) => (
        <Fragment key={label}>
          <dt>{label}</dt>
          <dd>{value}</dd>
        </Fragment>
      ))}
    </dl>
  );
}
