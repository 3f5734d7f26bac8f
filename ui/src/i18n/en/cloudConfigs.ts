export const cloudConfigs = {
  title: 'Cloud-configs',
  create: 'New cloud-config',
  user: 'User data',
  userHelp: 'What the guest does at its first start: users, packages, files, commands.',
  network: 'Network data',
  networkHelp: 'How the guest sets up its network.',
  content: 'Content',
  lines: 'Lines',
  emptyTitle: 'No cloud-configs yet',
  emptyHelp: 'A stored cloud-config can be chosen when a machine is made, instead of writing the same again.',
  deleteHelp: 'It can no longer be chosen for new machines. Machines that were made with it keep their copy.',
} as const;
