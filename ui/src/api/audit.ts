/** Who did what: docs/audit.md. */

export const auditPath = '/croft/v1/audit';

export interface AuditUser {
  username?: string;
  uid?: string;
  groups?: string[];
}

export interface AuditObject {
  resource: string;
  namespace?: string;
  name?: string;
  uid?: string;
  apiGroup?: string;
  apiVersion?: string;
  subresource?: string;
}

/** An `audit.k8s.io/v1` Event, as far as the page reads it. */
export interface AuditEvent {
  auditID: string;
  stage: string;
  requestURI: string;
  verb: string;
  user: AuditUser;
  impersonatedUser?: AuditUser;
  sourceIPs?: string[];
  userAgent?: string;
  objectRef?: AuditObject;
  responseStatus?: { code?: number; reason?: string; message?: string };
  stageTimestamp: string;
  annotations?: Record<string, string>;
}

export interface AuditPage {
  items: AuditEvent[];
  /** Where older ones are; none if there are none. */
  before?: string;
  /** Where newer ones will be. */
  after?: string;
}
