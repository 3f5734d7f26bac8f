package main

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
)

var dynamicProbes = []probe{
	{"dynamic-crd", dynamicCRD},
	{"metadata-client", metadataClient},
}

var (
	crds   = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	probes = schema.GroupVersionResource{Group: "probe.example.com", Version: "v1", Resource: "probes"}
)

func dynamicCRD(ctx context.Context, e env) error {
	definition := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "probes.probe.example.com"},
		"spec": map[string]any{
			"group": "probe.example.com", "scope": "Namespaced",
			"names": map[string]any{"plural": "probes", "singular": "probe", "kind": "Probe"},
			"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true,
				"subresources": map[string]any{"status": map[string]any{}},
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "properties": map[string]any{
					"spec":   map[string]any{"type": "object", "properties": map[string]any{"size": map[string]any{"type": "integer", "default": int64(3)}}},
					"status": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}}},
		}}}
	if _, err := e.dynamic.Resource(crds).Create(ctx, definition, create); err != nil {
		return fmt.Errorf("create the definition: %w", err)
	}
	client := e.dynamic.Resource(probes).Namespace(e.namespace)
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "probe.example.com/v1", "kind": "Probe", "metadata": map[string]any{"name": "p"}, "spec": map[string]any{}}}
	// Served within a second of its creation.
	start := time.Now()
	if err := eventually(ctx, func() bool { _, err := client.List(ctx, metav1.ListOptions{}); return err == nil }); err != nil {
		return fmt.Errorf("not served: %w", err)
	}
	if took := time.Since(start); took > 5*time.Second {
		return fmt.Errorf("served only after %v", took)
	}
	made, err := client.Create(ctx, object, create)
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	if size, _, _ := unstructured.NestedInt64(made.Object, "spec", "size"); size != 3 {
		return fmt.Errorf("not defaulted: %v", made.Object)
	}
	if _, err := client.Patch(ctx, "p", types.MergePatchType, []byte(`{"status":{"phase":"Good"}}`), metav1.PatchOptions{}, "status"); err != nil {
		return fmt.Errorf("patch the status: %w", err)
	}
	applied := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "probe.example.com/v1", "kind": "Probe", "metadata": map[string]any{"name": "q"}, "spec": map[string]any{"size": int64(5)}}}
	if _, err := client.Apply(ctx, "q", applied, metav1.ApplyOptions{FieldManager: "probe"}); err != nil {
		return fmt.Errorf("apply: %w", err)
	}
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(e.dynamic, 0, e.namespace, nil)
	informer := factory.ForResource(probes).Informer()
	factory.Start(ctx.Done())
	syncing, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	if !cache.WaitForCacheSync(syncing.Done(), informer.HasSynced) {
		return fmt.Errorf("the informer did not sync")
	}
	if n := len(informer.GetStore().List()); n != 2 {
		return fmt.Errorf("the informer has %d of 2 objects", n)
	}
	if err := e.dynamic.Resource(crds).Delete(ctx, "probes.probe.example.com", metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("delete the definition: %w", err)
	}
	return eventually(ctx, func() bool { _, err := client.List(ctx, metav1.ListOptions{}); return err != nil })
}

func metadataClient(ctx context.Context, e env) error {
	client, err := metadata.NewForConfig(e.config)
	if err != nil {
		return err
	}
	accounts := schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	got, err := client.Resource(accounts).Get(ctx, e.namespace, get)
	if err != nil {
		return err
	}
	if got.Name != e.namespace || got.UID == "" {
		return fmt.Errorf("got %v", got)
	}
	list, err := client.Resource(accounts).List(ctx, metav1.ListOptions{Limit: 2})
	if err != nil {
		return err
	}
	return expect(len(list.Items) == 2, "listed %d", len(list.Items))
}
