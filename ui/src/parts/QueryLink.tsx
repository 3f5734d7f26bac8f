import { Link } from '@tanstack/react-router';
import type { ComponentPropsWithRef } from 'react';

type QueryLinkProps = Omit<ComponentPropsWithRef<'a'>, 'href'> & { to: string; query: Record<string, string> };

/** A link with something after the question mark, for buttons and menus, whose own types get in the way of the router's. */
export function QueryLink({ to, query, ...rest }: QueryLinkProps) {
  return <Link to={to} search={query} {...rest} />;
}
