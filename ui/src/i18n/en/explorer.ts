export const explorer = {
  title: 'Explorer',
  lead: 'Every kind of object that the server knows, also those without a screen of their own.',
  kinds: 'Kinds',
  group: 'Group',
  version: 'Version',
  scope: 'Scope',
  namespaced: 'in a namespace',
  cluster: 'of the cluster',
  create: 'Create from YAML',
  createTitle: 'New {kind}',
  shortNames: 'Short names',
} as const;
