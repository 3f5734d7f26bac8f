/** What a SelfSubjectRulesReview says, and how to read it. */

export interface ResourceRule {
  verbs: string[];
  apiGroups?: string[];
  resources?: string[];
  resourceNames?: string[];
}

export interface Question {
  verb: string;
  group: string;
  /** `virtualmachines`, or with a subresource `virtualmachineinstances/vnc`. */
  resource: string;
  name?: string;
}

export function allowed(rules: readonly ResourceRule[], question: Question): boolean {
  return rules.some((rule) => covers(rule, question));
}

function covers(rule: ResourceRule, { verb, group, resource, name }: Question): boolean {
  if (!has(rule.verbs, verb) || !has(rule.apiGroups, group)) return false;
  const slash = resource.indexOf('/');
  const anySubresource = slash >= 0 && rule.resources?.includes(`*${resource.slice(slash)}`);
  if (!anySubresource && !has(rule.resources, resource)) return false;
  if (!rule.resourceNames || rule.resourceNames.length === 0) return true;
  return name !== undefined && rule.resourceNames.includes(name);
}

function has(list: readonly string[] | undefined, wanted: string): boolean {
  return list !== undefined && (list.includes('*') || list.includes(wanted));
}
