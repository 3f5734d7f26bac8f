// Probes of an API server with the real client-go: each prints one line, PASS or FAIL.
//
// Run as `go run . --kubeconfig FILE [PROBE...]`; the exit code is not zero when a probe failed.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

// env is what every probe gets: clients of the server and a namespace of its own.
type env struct {
	config    *rest.Config
	client    kubernetes.Interface
	dynamic   dynamic.Interface
	namespace string
}

type probe struct {
	name string
	run  func(context.Context, env) error
}

func main() {
	kubeconfig := flag.String("kubeconfig", os.Getenv("KUBECONFIG"), "the server's admin kubeconfig")
	timeout := flag.Duration("timeout", time.Minute, "how long one probe may take")
	flag.Parse()
	// What the libraries log is expected noise (a cancelled election, a closed watch); the probes say what matters.
	klog.SetLogger(logr.Discard())
	if err := run(*kubeconfig, *timeout, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(kubeconfig string, timeout time.Duration, only []string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 200, 400
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	dyn, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	failed := 0
	for _, p := range slices.Concat(typedProbes, watchProbes, discoveryProbes, dynamicProbes) {
		if len(only) > 0 && !slices.Contains(only, p.name) {
			continue
		}
		e := env{config: config, client: client, dynamic: dyn, namespace: "probe-" + p.name}
		if err := runOne(e, p, timeout); err != nil {
			failed++
			fmt.Printf("FAIL %s: %v\n", p.name, err)
			continue
		}
		fmt.Printf("PASS %s\n", p.name)
	}
	if failed > 0 {
		return fmt.Errorf("%d probes failed", failed)
	}
	return nil
}

func runOne(e env, p probe, timeout time.Duration) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: e.namespace}}
	if _, err := e.client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create the namespace: %w", err)
	}
	return p.run(ctx, e)
}

// expect turns a false claim into an error.
func expect(ok bool, format string, args ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf(format, args...)
}
