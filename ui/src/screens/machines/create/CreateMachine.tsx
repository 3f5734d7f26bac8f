import { SegmentedControl } from '@mantine/core';
import { useQueryState } from '@/app/address';
import { t } from '@/i18n';
import { PageHead } from '@/parts/Page';
import { FormPage } from './FormPage';
import { TemplatePage } from './TemplatePage';
import { YamlPage } from './YamlPage';

const ways = { form: FormPage, template: TemplatePage, yaml: YamlPage } as const;
type Way = keyof typeof ways;

export function Screen() {
  const [{ from }, setParams] = useQueryState();
  const way: Way = from === 'template' || from === 'yaml' ? from : 'form';
  const Page = ways[way];
  return (
    <>
      <PageHead
        title={t('create.title')}
        parent={{ title: t('machines.title'), to: '/machines' }}
        actions={
          <SegmentedControl
            value={way}
            onChange={(value) => setParams({ from: value === 'form' ? undefined : value })}
            data={[{ value: 'form', label: t('create.form') }, { value: 'template', label: t('create.template') }, { value: 'yaml', label: t('create.yaml') }]}
          />
        }
      />
      <Page />
    </>
  );
}
