import { Alert, List } from '@mantine/core';
import type { ApiError } from '@/api/errors';
import { t } from '@/i18n';

/** A refusal of the server, above what it is about. */
export function Problem({ error }: { error: ApiError }) {
  const several = error.causes.length > 1;
  // Some refusals do not say themselves what they are about.
  const field = error.causes[0]?.field ?? '';
  const untold = field !== '' && !error.message.includes(field);
  return (
    <Alert color="red" role="alert" title={t('common.refused')}>
      {several ? (
        <List size="sm">
          {error.causes.map((cause) => <List.Item key={`${cause.field} ${cause.message}`}><code>{cause.field}</code> {cause.message}</List.Item>)}
        </List>
      ) : (
        <>{untold && <><code>{field}</code> </>}{error.message}</>
      )}
    </Alert>
  );
}
