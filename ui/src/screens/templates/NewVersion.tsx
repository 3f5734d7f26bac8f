import { useObject } from '@/api/collections';
import type { VirtualMachineTemplate } from '@/api/harvester';
import { kinds } from '@/api/kinds';
import { objectAddress, useAddress, useQueryState } from '@/app/address';
import { t } from '@/i18n';
import { PageHead } from '@/parts/Page';
import { ObjectStates } from '@/parts/States';
import { toYaml } from '@/parts/yaml/document';
import { YamlCreate } from '@/parts/yaml/YamlCreate';
import { numberOf, versionToEdit } from './template';
import { VersionForm } from './VersionForm';

/** A further version of a template: from the form, or of an earlier one as text. */
export function Screen() {
  const { namespace = '', name = '' } = useAddress();
  const [{ based }] = useQueryState();
  const { snapshot } = useObject(kinds.templates, namespace, name);
  return (
    <>
      <PageHead title={t('templates.newVersionOf', { name })} parent={{ title: name, to: `/templates/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}` }} />
      <ObjectStates snapshot={snapshot} name={name}>{(template) => (based ? <BasedOn template={template} name={based} /> : <VersionForm template={template} />)}</ObjectStates>
    </>
  );
}

function BasedOn({ template, name }: { template: VirtualMachineTemplate; name: string }) {
  const { snapshot } = useObject(kinds.templateVersions, template.metadata.namespace, name);
  return (
    <ObjectStates snapshot={snapshot} name={name}>
      {(version) => (
        <>
          <p>{t('templates.basedHelp', { version: numberOf(version) })}</p>
          <YamlCreate key={version.metadata.uid} kind={kinds.templateVersions} starter={toYaml(versionToEdit(version))} back={objectAddress('/templates', template)} addressOf={() => objectAddress('/templates', template)} />
        </>
      )}
    </ObjectStates>
  );
}
