package main

import (
	"context"
	"fmt"

	openapi_v2 "github.com/google/gnostic-models/openapiv2"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/restmapper"
	utilproto "k8s.io/kube-openapi/pkg/util/proto"
	"k8s.io/kube-openapi/pkg/util/proto/validation"
	"k8s.io/kubectl/pkg/util/openapi"
)

var discoveryProbes = []probe{
	{"discovery-aggregated", discoveryAggregated},
	{"discovery-legacy", discoveryLegacy},
	{"rest-mapper", restMapper},
	{"openapi-v2", openapiV2},
	{"openapi-v3", openapiV3},
}

func discoveryAggregated(_ context.Context, e env) error {
	client := discovery.NewDiscoveryClientForConfigOrDie(e.config)
	groups, resources, failed, err := client.GroupsAndMaybeResources()
	if err != nil || len(failed) > 0 {
		return fmt.Errorf("discovery: %v %v", failed, err)
	}
	if resources == nil {
		return fmt.Errorf("the server did not answer with aggregated discovery")
	}
	if len(groups.Groups) < 10 {
		return fmt.Errorf("only %d groups", len(groups.Groups))
	}
	pods := resources[schema.GroupVersion{Version: "v1"}]
	for _, r := range pods.APIResources {
		if r.Name == "pods" {
			return expect(r.Namespaced && r.Kind == "Pod" && len(r.Verbs) == 8 && len(r.ShortNames) == 1, "pods are %v", r)
		}
	}
	return fmt.Errorf("no pods in %v", pods)
}

func discoveryLegacy(_ context.Context, e env) error {
	client := discovery.NewDiscoveryClientForConfigOrDie(e.config)
	client.UseLegacyDiscovery = true
	groups, lists, err := client.ServerGroupsAndResources()
	if err != nil {
		return err
	}
	if len(groups) < 10 || len(lists) < 10 {
		return fmt.Errorf("%d groups, %d versions", len(groups), len(lists))
	}
	version, err := client.ServerVersion()
	if err != nil {
		return err
	}
	return expect(version.Major == "1" && version.Minor != "", "version %v", version)
}

func restMapper(_ context.Context, e env) error {
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(discovery.NewDiscoveryClientForConfigOrDie(e.config)))
	mapping, err := mapper.RESTMapping(schema.GroupKind{Group: "apps", Kind: "Deployment"})
	if err != nil {
		return err
	}
	if mapping.Resource.Resource != "deployments" {
		return fmt.Errorf("mapped to %v", mapping.Resource)
	}
	kind, err := mapper.KindFor(schema.GroupVersionResource{Resource: "cm"})
	if err == nil {
		return fmt.Errorf("the plain mapper should not know short names, got %v", kind)
	}
	expanded := restmapper.NewShortcutExpander(mapper, memory.NewMemCacheClient(discovery.NewDiscoveryClientForConfigOrDie(e.config)), nil)
	kind, err = expanded.KindFor(schema.GroupVersionResource{Resource: "cm"})
	if err != nil {
		return err
	}
	return expect(kind.Kind == "ConfigMap", "cm is %v", kind)
}

// As Argo CD does it: the gnostic document, from it the parser of typed objects by GVK, which is fatal when broken.
func openapiV2(_ context.Context, e env) error {
	document, err := discovery.NewDiscoveryClientForConfigOrDie(e.config).OpenAPISchema()
	if err != nil {
		return err
	}
	raw, err := proto.Marshal(document)
	if err != nil {
		return err
	}
	if err := proto.Unmarshal(raw, &openapi_v2.Document{}); err != nil {
		return err
	}
	models, err := utilproto.NewOpenAPIData(document)
	if err != nil {
		return fmt.Errorf("models: %w", err)
	}
	parser, err := managedfields.NewGVKParser(models, false)
	if err != nil {
		return fmt.Errorf("gvk parser: %w", err)
	}
	for _, gvk := range []schema.GroupVersionKind{
		{Version: "v1", Kind: "ConfigMap"}, {Version: "v1", Kind: "Service"}, {Group: "apps", Version: "v1", Kind: "Deployment"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole"},
	} {
		if parser.Type(gvk) == nil {
			return fmt.Errorf("no type for %v", gvk)
		}
	}
	resources, err := openapi.NewOpenAPIData(document)
	if err != nil {
		return fmt.Errorf("kubectl's resources: %w", err)
	}
	deployment := resources.LookupResource(schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"})
	if deployment == nil {
		return fmt.Errorf("kubectl does not find Deployment")
	}
	wrong := map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "spec": map[string]any{"replicas": "three"}}
	return expect(len(validation.ValidateModel(wrong, deployment, "Deployment")) > 0, "a wrong type passes validation")
}

func openapiV3(_ context.Context, e env) error {
	paths, err := discovery.NewDiscoveryClientForConfigOrDie(e.config).OpenAPIV3().Paths()
	if err != nil {
		return err
	}
	for _, path := range []string{"api/v1", "apis/apps/v1", "apis/rbac.authorization.k8s.io/v1"} {
		group, found := paths[path]
		if !found {
			return fmt.Errorf("no %s in the index", path)
		}
		for _, media := range []string{"application/json", "application/com.github.proto-openapi.spec.v3@v1.0+protobuf"} {
			if document, err := group.Schema(media); err != nil || len(document) < 1000 {
				return fmt.Errorf("%s as %s: %d bytes, %v", path, media, len(document), err)
			}
		}
	}
	return nil
}
