package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
)

// Typed clients send protobuf bodies, also for DeleteOptions.
var typedProbes = []probe{
	{"typed-core", typedCore},
	{"typed-workloads", typedWorkloads},
	{"typed-cluster", typedCluster},
	{"typed-delete-options", typedDeleteOptions},
	{"typed-reviews", typedReviews},
	{"typed-token", typedToken},
	{"typed-apply", typedApply},
	{"typed-patch", typedPatch},
	{"typed-errors", typedErrors},
	{"typed-conflict", typedConflict},
	{"typed-status-scale", typedStatusAndScale},
	{"typed-pages", typedPages},
}

var (
	create = metav1.CreateOptions{}
	update = metav1.UpdateOptions{}
	get    = metav1.GetOptions{}
)

func named(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Labels: map[string]string{"probe": "yes"}}
}

func typedCore(ctx context.Context, e env) error {
	core := e.client.CoreV1()
	secret := &corev1.Secret{ObjectMeta: named("s"), StringData: map[string]string{"a": "text"}, Data: map[string][]byte{"b": {0, 255}}}
	made, err := core.Secrets(e.namespace).Create(ctx, secret, create)
	if err != nil {
		return fmt.Errorf("create a secret: %w", err)
	}
	if string(made.Data["a"]) != "text" || len(made.Data["b"]) != 2 || made.Type != corev1.SecretTypeOpaque {
		return fmt.Errorf("the secret came back as %v", made)
	}
	made.Data["a"] = []byte("changed")
	if _, err := core.Secrets(e.namespace).Update(ctx, made, update); err != nil {
		return fmt.Errorf("update a secret: %w", err)
	}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: named("c"), Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: ptr.To("local"),
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{"storage": resource.MustParse("1500Mi")}},
	}}
	gotClaim, err := core.PersistentVolumeClaims(e.namespace).Create(ctx, claim, create)
	if err != nil {
		return fmt.Errorf("create a claim: %w", err)
	}
	if size := gotClaim.Spec.Resources.Requests["storage"]; size.String() != "1500Mi" {
		return fmt.Errorf("the size came back as %s", size.String())
	}
	service := &corev1.Service{ObjectMeta: named("svc"), Spec: corev1.ServiceSpec{
		Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromString("web")}}, Selector: map[string]string{"a": "b"},
	}}
	gotService, err := core.Services(e.namespace).Create(ctx, service, create)
	if err != nil {
		return fmt.Errorf("create a service: %w", err)
	}
	if gotService.Spec.ClusterIP == "" || gotService.Spec.Ports[0].TargetPort.StrVal != "web" {
		return fmt.Errorf("the service came back as %v", gotService.Spec)
	}
	pod := &corev1.Pod{ObjectMeta: named("p"), Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "c", Image: "i", Env: []corev1.EnvVar{{Name: "A", Value: "b"}},
			Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"cpu": resource.MustParse("250m")}}}},
	}}
	gotPod, err := core.Pods(e.namespace).Create(ctx, pod, create)
	if err != nil {
		return fmt.Errorf("create a pod: %w", err)
	}
	if cpu := gotPod.Spec.Containers[0].Resources.Limits["cpu"]; cpu.MilliValue() != 250 {
		return fmt.Errorf("the cpu limit came back as %s", cpu.String())
	}
	account := &corev1.ServiceAccount{ObjectMeta: named("robot")}
	if _, err := core.ServiceAccounts(e.namespace).Create(ctx, account, create); err != nil {
		return fmt.Errorf("create a service account: %w", err)
	}
	config := &corev1.ConfigMap{ObjectMeta: named("cm"), Data: map[string]string{"k": "v"}, BinaryData: map[string][]byte{"z": {1}}}
	if _, err := core.ConfigMaps(e.namespace).Create(ctx, config, create); err != nil {
		return fmt.Errorf("create a config map: %w", err)
	}
	event := &corev1.Event{ObjectMeta: named("ev"), InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: "p", Namespace: e.namespace},
		Reason: "Probe", Type: "Normal", FirstTimestamp: metav1.Now(), LastTimestamp: metav1.Now(), Count: 1}
	if _, err := core.Events(e.namespace).Create(ctx, event, create); err != nil {
		return fmt.Errorf("create an event: %w", err)
	}
	secrets, err := core.Secrets(e.namespace).List(ctx, metav1.ListOptions{LabelSelector: "probe=yes"})
	if err != nil {
		return fmt.Errorf("list secrets: %w", err)
	}
	return expect(len(secrets.Items) == 1 && string(secrets.Items[0].Data["a"]) == "changed", "listed %v", secrets.Items)
}

func typedWorkloads(ctx context.Context, e env) error {
	labels := map[string]string{"app": "x"}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	selector := &metav1.LabelSelector{MatchLabels: labels}
	deployment := &appsv1.Deployment{ObjectMeta: named("d"), Spec: appsv1.DeploymentSpec{Selector: selector, Template: template}}
	got, err := e.client.AppsV1().Deployments(e.namespace).Create(ctx, deployment, create)
	if err != nil {
		return fmt.Errorf("create a deployment: %w", err)
	}
	if got.Spec.Replicas == nil || *got.Spec.Replicas != 1 || got.Generation != 1 {
		return fmt.Errorf("the deployment was not defaulted: %v", got)
	}
	stateful := &appsv1.StatefulSet{ObjectMeta: named("s"), Spec: appsv1.StatefulSetSpec{Selector: selector, Template: template, ServiceName: "svc"}}
	if _, err := e.client.AppsV1().StatefulSets(e.namespace).Create(ctx, stateful, create); err != nil {
		return fmt.Errorf("create a stateful set: %w", err)
	}
	daemon := &appsv1.DaemonSet{ObjectMeta: named("d"), Spec: appsv1.DaemonSetSpec{Selector: selector, Template: template}}
	if _, err := e.client.AppsV1().DaemonSets(e.namespace).Create(ctx, daemon, create); err != nil {
		return fmt.Errorf("create a daemon set: %w", err)
	}
	never := template
	never.Spec.RestartPolicy = corev1.RestartPolicyNever
	job := &batchv1.Job{ObjectMeta: named("j"), Spec: batchv1.JobSpec{Template: never}}
	if _, err := e.client.BatchV1().Jobs(e.namespace).Create(ctx, job, create); err != nil {
		return fmt.Errorf("create a job: %w", err)
	}
	prefix := networkingv1.PathTypePrefix
	ingress := &networkingv1.Ingress{ObjectMeta: named("i"), Spec: networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{
		Host: "a.example.com", IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{
			Paths: []networkingv1.HTTPIngressPath{{Path: "/", PathType: &prefix, Backend: networkingv1.IngressBackend{
				Service: &networkingv1.IngressServiceBackend{Name: "s", Port: networkingv1.ServiceBackendPort{Number: 80}}}}}}}}}}}
	if _, err := e.client.NetworkingV1().Ingresses(e.namespace).Create(ctx, ingress, create); err != nil {
		return fmt.Errorf("create an ingress: %w", err)
	}
	lease := &coordinationv1.Lease{ObjectMeta: named("l"), Spec: coordinationv1.LeaseSpec{
		HolderIdentity: ptr.To("me"), RenewTime: ptr.To(metav1.NewMicroTime(time.UnixMicro(1700000000123456)))}}
	gotLease, err := e.client.CoordinationV1().Leases(e.namespace).Create(ctx, lease, create)
	if err != nil {
		return fmt.Errorf("create a lease: %w", err)
	}
	if gotLease.Spec.RenewTime.UnixMicro() != 1700000000123456 {
		return fmt.Errorf("the lease lost its microseconds: %v", gotLease.Spec.RenewTime)
	}
	event := &eventsv1.Event{ObjectMeta: named("e"), EventTime: metav1.NowMicro(), ReportingController: "example.com/c",
		ReportingInstance: "i", Action: "Probe", Reason: "R", Type: "Normal",
		Regarding: corev1.ObjectReference{Kind: "Pod", Name: "p", Namespace: e.namespace}}
	_, err = e.client.EventsV1().Events(e.namespace).Create(ctx, event, create)
	return err
}

func typedCluster(ctx context.Context, e env) error {
	role := &rbacv1.ClusterRole{ObjectMeta: named("probe-role"), Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}, ResourceNames: []string{"x"}}}}
	if _, err := e.client.RbacV1().ClusterRoles().Create(ctx, role, create); err != nil {
		return fmt.Errorf("create a cluster role: %w", err)
	}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: named("probe-binding"),
		RoleRef:  rbacv1.RoleRef{Kind: "ClusterRole", Name: "probe-role"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: "robot", Namespace: e.namespace}}}
	got, err := e.client.RbacV1().ClusterRoleBindings().Create(ctx, binding, create)
	if err != nil {
		return fmt.Errorf("create a binding: %w", err)
	}
	if got.RoleRef.APIGroup != rbacv1.GroupName {
		return fmt.Errorf("roleRef.apiGroup was not defaulted: %v", got.RoleRef)
	}
	class := &storagev1.StorageClass{ObjectMeta: named("probe-class"), Provisioner: "example.com/p", Parameters: map[string]string{"a": "b"}}
	gotClass, err := e.client.StorageV1().StorageClasses().Create(ctx, class, create)
	if err != nil {
		return fmt.Errorf("create a storage class: %w", err)
	}
	if gotClass.ReclaimPolicy == nil || *gotClass.ReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
		return fmt.Errorf("reclaimPolicy was not defaulted: %v", gotClass)
	}
	node := &corev1.Node{ObjectMeta: named("probe-node")}
	made, err := e.client.CoreV1().Nodes().Create(ctx, node, create)
	if err != nil {
		return fmt.Errorf("create a node: %w", err)
	}
	made.Status.Capacity = corev1.ResourceList{"cpu": resource.MustParse("4")}
	if made, err = e.client.CoreV1().Nodes().UpdateStatus(ctx, made, update); err != nil {
		return fmt.Errorf("update a node's status: %w", err)
	}
	return expect(made.Status.Capacity.Cpu().Value() == 4, "capacity is %v", made.Status.Capacity)
}

func typedDeleteOptions(ctx context.Context, e env) error {
	maps := e.client.CoreV1().ConfigMaps(e.namespace)
	made, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: named("a")}, create)
	if err != nil {
		return err
	}
	other := types.UID("other")
	err = maps.Delete(ctx, "a", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &other}})
	if !apierrors.IsConflict(err) {
		return fmt.Errorf("a wrong uid gave %v", err)
	}
	foreground := metav1.DeletePropagationForeground
	options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &made.UID}, PropagationPolicy: &foreground, GracePeriodSeconds: ptr.To[int64](0)}
	if err := maps.Delete(ctx, "a", options); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	for _, name := range []string{"b", "c"} {
		if _, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: named(name)}, create); err != nil {
			return err
		}
	}
	if err := maps.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "probe=yes", FieldSelector: "metadata.name!=a"}); err != nil {
		return fmt.Errorf("delete the collection: %w", err)
	}
	_, err = maps.Get(ctx, "b", get)
	return expect(apierrors.IsNotFound(err), "b is still there: %v", err)
}

func typedReviews(ctx context.Context, e env) error {
	reviews := e.client.AuthorizationV1()
	self, err := reviews.SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "list", Resource: "pods"}}}, create)
	if err != nil || !self.Status.Allowed {
		return fmt.Errorf("the administrator may not list pods: %v %w", self, errors.Join(err))
	}
	other, err := reviews.SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{User: "nobody", ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "list", Resource: "pods"}}}, create)
	if err != nil || other.Status.Allowed {
		return fmt.Errorf("nobody may list pods: %v %w", other, errors.Join(err))
	}
	rules, err := reviews.SelfSubjectRulesReviews().Create(ctx, &authorizationv1.SelfSubjectRulesReview{
		Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: e.namespace}}, create)
	if err != nil || len(rules.Status.ResourceRules) == 0 {
		return fmt.Errorf("rules review: %v %w", rules, errors.Join(err))
	}
	me, err := e.client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, create)
	if err != nil {
		return fmt.Errorf("self subject review: %w", err)
	}
	return expect(me.Status.UserInfo.Username != "", "I am nobody: %v", me)
}

func typedToken(ctx context.Context, e env) error {
	accounts := e.client.CoreV1().ServiceAccounts(e.namespace)
	if _, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: named("robot")}, create); err != nil {
		return err
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](3600)}}
	made, err := accounts.CreateToken(ctx, "robot", request, create)
	if err != nil {
		return fmt.Errorf("create a token: %w", err)
	}
	review, err := e.client.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: made.Status.Token}}, create)
	if err != nil {
		return fmt.Errorf("review the token: %w", err)
	}
	wanted := "system:serviceaccount:" + e.namespace + ":robot"
	return expect(review.Status.Authenticated && review.Status.User.Username == wanted, "the token is of %v", review.Status)
}

func typedApply(ctx context.Context, e env) error {
	maps := e.client.CoreV1().ConfigMaps(e.namespace)
	one := applycorev1.ConfigMap("a", e.namespace).WithData(map[string]string{"k": "one"})
	if _, err := maps.Apply(ctx, one, metav1.ApplyOptions{FieldManager: "one"}); err != nil {
		return fmt.Errorf("apply: %w", err)
	}
	two := applycorev1.ConfigMap("a", e.namespace).WithData(map[string]string{"k": "two"})
	_, err := maps.Apply(ctx, two, metav1.ApplyOptions{FieldManager: "two"})
	if !apierrors.IsConflict(err) || !apierrors.HasStatusCause(err, metav1.CauseTypeFieldManagerConflict) {
		return fmt.Errorf("a conflicting apply gave %v", err)
	}
	got, err := maps.Apply(ctx, two, metav1.ApplyOptions{FieldManager: "two", Force: true})
	if err != nil {
		return fmt.Errorf("forced apply: %w", err)
	}
	if got.Data["k"] != "two" {
		return fmt.Errorf("forced apply left %v", got.Data)
	}
	extracted, err := applycorev1.ExtractConfigMap(got, "two")
	if err != nil {
		return fmt.Errorf("extract: %w", err)
	}
	return expect(extracted.Data["k"] == "two", "extracted %v", extracted)
}

func typedPatch(ctx context.Context, e env) error {
	maps := e.client.CoreV1().ConfigMaps(e.namespace)
	if _, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: named("a"), Data: map[string]string{"x": "1"}}, create); err != nil {
		return err
	}
	for _, p := range []struct {
		kind types.PatchType
		body string
	}{
		{types.JSONPatchType, `[{"op":"test","path":"/metadata/finalizers","value":null},{"op":"add","path":"/data/json","value":"1"}]`},
		{types.MergePatchType, `{"data":{"merge":"1","x":null}}`},
		{types.StrategicMergePatchType, `{"data":{"strategic":"1"}}`},
	} {
		if _, err := maps.Patch(ctx, "a", p.kind, []byte(p.body), metav1.PatchOptions{}); err != nil {
			return fmt.Errorf("%s: %w", p.kind, err)
		}
	}
	got, err := maps.Get(ctx, "a", get)
	if err != nil {
		return err
	}
	return expect(len(got.Data) == 3 && got.Data["json"]+got.Data["merge"]+got.Data["strategic"] == "111", "patched to %v", got.Data)
}

func typedErrors(ctx context.Context, e env) error {
	maps := e.client.CoreV1().ConfigMaps(e.namespace)
	if _, err := maps.Get(ctx, "none", get); !apierrors.IsNotFound(err) {
		return fmt.Errorf("get of a missing gave %v", err)
	}
	if _, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: named("a")}, create); err != nil {
		return err
	}
	if _, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: named("a")}, create); !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("a second create gave %v", err)
	}
	if _, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: named("Bad_Name")}, create); !apierrors.IsInvalid(err) {
		return fmt.Errorf("a bad name gave %v", err)
	}
	if _, err := maps.List(ctx, metav1.ListOptions{FieldSelector: "spec.x=1"}); !apierrors.IsBadRequest(err) {
		return fmt.Errorf("a bad field selector gave %v", err)
	}
	impersonated := *e.config
	impersonated.Impersonate.UserName = "nobody"
	nobody, err := newClient(&impersonated)
	if err != nil {
		return err
	}
	_, err = nobody.CoreV1().Secrets(e.namespace).List(ctx, metav1.ListOptions{})
	return expect(apierrors.IsForbidden(err), "nobody's list gave %v", err)
}

func typedConflict(ctx context.Context, e env) error {
	maps := e.client.CoreV1().ConfigMaps(e.namespace)
	old, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: named("a"), Data: map[string]string{"n": "0"}}, create)
	if err != nil {
		return err
	}
	fresh := old.DeepCopy()
	fresh.Data["n"] = "1"
	if _, err := maps.Update(ctx, fresh, update); err != nil {
		return err
	}
	old.Data["n"] = "2"
	if _, err := maps.Update(ctx, old, update); !apierrors.IsConflict(err) {
		return fmt.Errorf("a stale update gave %v", err)
	}
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		current, err := maps.Get(ctx, "a", get)
		if err != nil {
			return err
		}
		current.Data["n"] = "3"
		_, err = maps.Update(ctx, current, update)
		return err
	})
}

func typedStatusAndScale(ctx context.Context, e env) error {
	deployments := e.client.AppsV1().Deployments(e.namespace)
	labels := map[string]string{"app": "x"}
	made, err := deployments.Create(ctx, &appsv1.Deployment{ObjectMeta: named("d"), Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}}}, create)
	if err != nil {
		return err
	}
	made.Status.ReadyReplicas, made.Status.Replicas = 1, 1
	made.Spec.Paused = true
	made, err = deployments.UpdateStatus(ctx, made, update)
	if err != nil {
		return fmt.Errorf("update the status: %w", err)
	}
	if made.Spec.Paused || made.Status.ReadyReplicas != 1 || made.Generation != 1 {
		return fmt.Errorf("the status update gave %v", made)
	}
	scale, err := deployments.GetScale(ctx, "d", get)
	if err != nil {
		return fmt.Errorf("get the scale: %w", err)
	}
	scale.Spec.Replicas = 5
	if _, err := deployments.UpdateScale(ctx, "d", scale, update); err != nil {
		return fmt.Errorf("update the scale: %w", err)
	}
	made, err = deployments.Get(ctx, "d", get)
	if err != nil {
		return err
	}
	return expect(*made.Spec.Replicas == 5 && made.Generation == 2, "scaled to %d, generation %d", *made.Spec.Replicas, made.Generation)
}

func typedPages(ctx context.Context, e env) error {
	maps := e.client.CoreV1().ConfigMaps(e.namespace)
	for i := range 7 {
		if _, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: named(fmt.Sprintf("p%d", i))}, create); err != nil {
			return err
		}
	}
	seen, options := 0, metav1.ListOptions{Limit: 3, LabelSelector: "probe=yes"}
	for {
		page, err := maps.List(ctx, options)
		if err != nil {
			return err
		}
		seen += len(page.Items)
		if options.Continue = page.Continue; options.Continue == "" {
			return expect(seen == 7, "saw %d of 7", seen)
		}
	}
}
