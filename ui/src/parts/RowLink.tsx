import { useRouter } from '@tanstack/react-router';
import type { ReactNode } from 'react';

/** A link for tables: the router's own watches the address, which hundreds of rows need not do. */
export function RowLink({ to, children, label, className }: { to: string; children: ReactNode; label?: string; className?: string | undefined }) {
  const router = useRouter();
  const href = `${import.meta.env.BASE_URL.replace(/\/$/, '')}${to}`;
  return (
    <a
      href={href}
      aria-label={label}
      title={label}
      className={className}
      onClick={(event) => {
        if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
        event.preventDefault();
        void router.navigate({ to });
      }}
    >
      {children}
    </a>
  );
}
