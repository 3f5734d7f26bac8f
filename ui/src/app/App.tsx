import { MantineProvider } from '@mantine/core';
import { Notifications } from '@mantine/notifications';
import { QueryClient, QueryClientProvider } from '@tanstack/react-query';
import { RouterProvider } from '@tanstack/react-router';
import { useLanguage } from '@/i18n';
import { ConfirmHost } from '@/parts/confirm';
import { router } from './router';
import { onForget } from './session';
import { theme, variables } from './theme';

const queries = new QueryClient({ defaultOptions: { queries: { retry: 1, staleTime: 10_000 } } });
onForget(() => queries.clear());

export function App() {
  const language = useLanguage();
  return (
    <MantineProvider theme={theme} cssVariablesResolver={variables} defaultColorScheme="auto">
      <QueryClientProvider client={queries}>
        <Notifications position="bottom-right" limit={4} />
        {/* Texts are plain function calls: another language means drawing everything anew. */}
        <ConfirmHost key={`confirm-${language}`} />
        <RouterProvider key={language} router={router} />
      </QueryClientProvider>
    </MantineProvider>
  );
}
