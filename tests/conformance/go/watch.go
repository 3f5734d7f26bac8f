package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	watchtools "k8s.io/client-go/tools/watch"
)

var watchProbes = []probe{
	{"informer-watchlist", informerWatchList},
	{"retry-watcher", retryWatcher},
	{"leader-election", leaderElection},
	{"watch-bookmarks", watchBookmarks},
}

func newClient(config *rest.Config) (kubernetes.Interface, error) {
	return kubernetes.NewForConfig(config)
}

// Informers open a WatchList stream here (KUBE_FEATURE_WatchListClient is on by default from 0.35): a server that
// ignores sendInitialEvents never lets them sync.
func informerWatchList(ctx context.Context, e env) error {
	maps := e.client.CoreV1().ConfigMaps(e.namespace)
	for i := range 10 {
		if _, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: named(fmt.Sprintf("c%d", i))}, create); err != nil {
			return err
		}
	}
	factory := informers.NewSharedInformerFactoryWithOptions(e.client, 0, informers.WithNamespace(e.namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = "probe=yes" }))
	informer := factory.Core().V1().ConfigMaps().Informer()
	var added, changed, removed atomic.Int32
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { added.Add(1) },
		UpdateFunc: func(any, any) { changed.Add(1) },
		DeleteFunc: func(any) { removed.Add(1) },
	}); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	syncing, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	if !cache.WaitForCacheSync(syncing.Done(), informer.HasSynced) {
		return fmt.Errorf("the informer did not sync")
	}
	if err := eventually(ctx, func() bool { return added.Load() == 10 }); err != nil {
		return fmt.Errorf("%d of 10 objects were seen: %w", added.Load(), err)
	}
	one, err := maps.Get(ctx, "c0", get)
	if err != nil {
		return err
	}
	one.Data = map[string]string{"a": "b"}
	if _, err := maps.Update(ctx, one, update); err != nil {
		return err
	}
	if err := maps.Delete(ctx, "c1", metav1.DeleteOptions{}); err != nil {
		return err
	}
	return eventually(ctx, func() bool { return changed.Load() == 1 && removed.Load() == 1 })
}

func retryWatcher(ctx context.Context, e env) error {
	maps := e.client.CoreV1().ConfigMaps(e.namespace)
	list, err := maps.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	watcher, err := watchtools.NewRetryWatcherWithContext(ctx, list.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = "probe=yes"
			return maps.Watch(ctx, o)
		},
	})
	if err != nil {
		return err
	}
	defer watcher.Stop()
	if _, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: named("a")}, create); err != nil {
		return err
	}
	if err := maps.Delete(ctx, "a", metav1.DeleteOptions{}); err != nil {
		return err
	}
	for _, wanted := range []watch.EventType{watch.Added, watch.Deleted} {
		select {
		case event := <-watcher.ResultChan():
			if event.Type != wanted {
				return fmt.Errorf("wanted %s, got %v", wanted, event)
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func leaderElection(ctx context.Context, e env) error {
	elect := func(ctx context.Context, id string, led chan<- string) (context.CancelFunc, error) {
		lock, err := resourcelock.New(resourcelock.LeasesResourceLock, e.namespace, "leader", e.client.CoreV1(), e.client.CoordinationV1(),
			resourcelock.ResourceLockConfig{Identity: id})
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithCancel(ctx)
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: lock, LeaseDuration: 3 * time.Second, RenewDeadline: 2 * time.Second, RetryPeriod: 300 * time.Millisecond, ReleaseOnCancel: true,
			Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) { led <- id }, OnStoppedLeading: func() {}},
		})
		if err != nil {
			cancel()
			return nil, err
		}
		go elector.Run(ctx)
		return cancel, nil
	}
	led := make(chan string, 2)
	wait := func() (string, error) {
		select {
		case id := <-led:
			return id, nil
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	stopFirst, err := elect(ctx, "first", led)
	if err != nil {
		return err
	}
	if id, err := wait(); err != nil || id != "first" {
		return fmt.Errorf("first leader is %q: %v", id, err)
	}
	stopSecond, err := elect(ctx, "second", led)
	if err != nil {
		return err
	}
	defer stopSecond()
	stopFirst()
	if id, err := wait(); err != nil || id != "second" {
		return fmt.Errorf("second leader is %q: %v", id, err)
	}
	return nil
}

func watchBookmarks(ctx context.Context, e env) error {
	sendInitial := true
	stream, err := e.client.CoreV1().Secrets(e.namespace).Watch(ctx, metav1.ListOptions{
		AllowWatchBookmarks: true, SendInitialEvents: &sendInitial, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan})
	if err != nil {
		return err
	}
	defer stream.Stop()
	for event := range stream.ResultChan() {
		object, ok := event.Object.(*corev1.Secret)
		if !ok {
			return fmt.Errorf("got %v", event)
		}
		if event.Type == watch.Bookmark {
			return expect(object.Annotations[metav1.InitialEventsAnnotationKey] == "true" && object.ResourceVersion != "", "bookmark %v", object)
		}
	}
	return fmt.Errorf("the watch ended without a bookmark")
}

func eventually(ctx context.Context, holds func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	for !holds() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}
