import { Button, Select, Switch } from '@mantine/core';
import { IconTemplate } from '@tabler/icons-react';
import { useQuery } from '@tanstack/react-query';
import { Link, useNavigate } from '@tanstack/react-router';
import { useMemo, useState } from 'react';
import { getObject } from '@/api/client';
import { useCollection } from '@/api/collections';
import { kinds } from '@/api/kinds';
import { useQueryState } from '@/app/address';
import { useDefaultNamespace, useNamespaceNames } from '@/app/namespace';
import { t } from '@/i18n';
import { Blank } from '@/parts/Blank';
import { NameInput } from '@/parts/form/NameInput';
import { isValidName } from '@/parts/form/names';
import { Preview } from '@/parts/form/Preview';
import { refusalOf, useSubmit } from '@/parts/form/useSubmit';
import { Card } from '@/parts/Page';
import { Problem } from '@/parts/Problem';
import { States } from '@/parts/States';
import classes from './Create.module.css';
import { submit } from './submit';
import type { ChosenImage } from './template';
import { fromTemplate, openImages, seedOf } from './template';
import { imageChoice } from './useChoices';

const idOf = ({ metadata }: { metadata: { namespace?: string; name: string } }) => `${metadata.namespace}/${metadata.name}`;

/** A machine of a template: only its name is asked for. */
export function TemplatePage() {
  const [params] = useQueryState();
  const templates = useCollection(kinds.templates);
  const versions = useCollection(kinds.templateVersions).items;
  const namespaces = useNamespaceNames();
  const defaultNamespace = useDefaultNamespace();
  const [name, setName] = useState('');
  const [namespace, setNamespace] = useState(defaultNamespace);
  const [templateId, setTemplateId] = useState<string | null>(params['template'] ?? null);
  const [versionId, setVersionId] = useState<string | null>(params['version'] ?? null);
  const [start, setStart] = useState(true);
  const navigate = useNavigate();

  const template = templates.items.find((each) => idOf(each) === templateId);
  const offered = versions.filter((version) => version.spec.templateId === templateId);
  const chosen = offered.find((version) => idOf(version) === (versionId ?? template?.spec.defaultVersionId)) ?? offered.at(-1);
  const seedName = seedOf(chosen);
  const { data: seed = null } = useQuery({
    queryKey: ['seed', chosen?.metadata.namespace, seedName],
    queryFn: () => getObject(kinds.secrets, chosen?.metadata.namespace, seedName ?? ''),
    enabled: seedName !== undefined,
  });

  const imageObjects = useCollection(kinds.images).items;
  const choices = useMemo(() => imageObjects.map(imageChoice).filter((image) => image.ready), [imageObjects]);
  const [images, setImages] = useState<Record<string, ChosenImage>>({});
  const open = openImages(chosen);

  const built = useMemo(() => (chosen ? fromTemplate(chosen, name, namespace, seed, start, images) : null), [chosen, name, namespace, seed, start, images]);
  const { busy, error, submit: send } = useSubmit(async () => {
    if (!built) return;
    await submit(built);
    void navigate({ to: `/machines/${namespace}/${name}${start ? '/console' : ''}` });
  });
  const incomplete = !built || !isValidName(name) || open.some((claim) => !images[claim]) || (seedName !== undefined && seed === null);

  return (
    <States snapshot={templates} empty={<Blank icon={IconTemplate} title={t('common.empty')} text={t('create.templateNone')} />}>
      <form
        className={classes.layout}
        onSubmit={(event) => {
          event.preventDefault();
          if (!incomplete && !busy) void send();
        }}
      >
        {error && !refusalOf(error, 'metadata.name') && <Problem error={error} />}
        <Card>
          <div className={classes.columns}>
            <Select label={t('create.templateChoose')} required searchable data={templates.items.map(idOf)} value={templateId} onChange={(id) => { setTemplateId(id); setVersionId(null); }} />
            <Select label={t('create.templateVersion')} allowDeselect={false} disabled={offered.length === 0} data={offered.map((version) => ({ value: idOf(version), label: `${version.status?.version ?? version.metadata.name}${idOf(version) === template?.spec.defaultVersionId ? ` (${t('create.versionDefault')})` : ''}` }))} value={chosen ? idOf(chosen) : null} onChange={setVersionId} />
            {open.map((claim) => (
              <Select key={claim} label={open.length > 1 ? `${t('create.image')} (${claim})` : t('create.image')} required searchable data={choices.map(({ id, label }) => ({ value: id, label }))} value={images[claim]?.id ?? null} onChange={(id) => setImages(withChoice(images, claim, choices.find((image) => image.id === id)))} />
            ))}
            <NameInput label={t('create.name')} value={name} onChange={setName} error={refusalOf(error, 'metadata.name')} />
            <Select label={t('common.namespace')} allowDeselect={false} searchable data={namespaces} value={namespace} onChange={(value) => setNamespace(value ?? 'default')} />
          </div>
        </Card>
        {built && <Preview objects={[built.machine]} />}
        <div className={classes.footer}>
          <Switch label={t('create.startAfter')} checked={start} onChange={(event) => setStart(event.currentTarget.checked)} />
          <Button variant="default" component={Link} to="/machines">{t('common.cancel')}</Button>
          <Button type="submit" disabled={incomplete} loading={busy}>{start ? t('create.submitStart') : t('create.submit')}</Button>
        </div>
      </form>
    </States>
  );
}

function withChoice(images: Record<string, ChosenImage>, claim: string, image: ChosenImage | undefined): Record<string, ChosenImage> {
  const { [claim]: _before, ...others } = images;
  return image ? { ...others, [claim]: image } : others;
}
