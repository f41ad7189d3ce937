package up

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/restmapper"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/kemudi/kemudi/internal/container"
	"github.com/kemudi/kemudi/internal/task"
)

// deployPatience is how long an application may take to serve.
const deployPatience = 2 * time.Minute

// ErrNoRuntime says that a machine has no built-in container runtime: it runs no pods, or with another one.
var ErrNoRuntime = errors.New("there is no container runtime of ours to import into")

// importEverywhere has each machine of a cluster that runs containers take the images of an archive.
func importEverywhere(ctx context.Context, o Options, file string) (names []string, _ error) {
	names, err := ImportImage(ctx, o, file)
	if o.Machines == nil || err != nil && !errors.Is(err, ErrNoRuntime) {
		return names, err
	}
	others, theirs := o.Machines.Import(ctx, file)
	if theirs != nil || len(others) > 0 {
		return others, theirs
	}
	return names, err
}

// ImportImage has the machine with these directories take the images of an archive, and
// returns their names.
func ImportImage(ctx context.Context, o Options, file string) (names []string, _ error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("open image: %w", err)
	}
	defer f.Close()
	images, err := container.DialImages(container.Options{DataDir: o.DataDir, RunDir: o.RunDir}.Socket())
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%w: %w", ErrNoRuntime, err)
	}
	if err != nil {
		return nil, err
	}
	defer images.Close()
	err = images.WhileConnected(ctx, func(ctx context.Context) error {
		names, err = images.Import(ctx, f)
		return err
	})
	return names, err
}

// deploy applies the manifests and waits until what they deploy serves. It
// returns where.
func deploy(ctx context.Context, o Options, p *printer) (urls []string, _ error) {
	if len(o.Manifests) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, deployPatience, fmt.Errorf("the application does not serve after %s", deployPatience))
	defer cancel()
	a, err := newApplier(o.DataDir)
	if err != nil {
		return nil, err
	}
	for _, file := range o.Manifests {
		objs, err := readManifest(file)
		if err != nil {
			return nil, err
		}
		for _, obj := range objs {
			if err := a.apply(ctx, obj); err != nil {
				return nil, fmt.Errorf("apply %s %s: %w", obj.GetKind(), obj.GetName(), err)
			}
		}
		p.step("applied " + file)
		for _, obj := range objs {
			url, err := a.await(ctx, obj, p)
			if err != nil {
				return nil, err
			}
			if url != "" {
				urls = append(urls, url)
			}
		}
	}
	return urls, nil
}

func readManifest(file string) ([]*unstructured.Unstructured, error) {
	data, err := os.ReadFile(filepath.Clean(file))
	if err != nil {
		return nil, fmt.Errorf("read manifest: %w", err)
	}
	var objs []*unstructured.Unstructured
	docs := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			return objs, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read manifest %s: %w", file, err)
		}
		obj := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(doc, &obj.Object); err != nil {
			return nil, fmt.Errorf("read manifest %s: %w", file, err)
		}
		if len(obj.Object) > 0 {
			objs = append(objs, obj)
		}
	}
}

// applier applies objects of any kind and waits for those it knows.
type applier struct {
	dynamic dynamic.Interface
	typed   kubernetes.Interface
	mapper  meta.RESTMapper
}

func newApplier(dataDir string) (*applier, error) {
	config, err := adminConfig(dataDir)
	if err != nil {
		return nil, err
	}
	d, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	groups, err := restmapper.GetAPIGroupResources(d)
	if err != nil {
		return nil, fmt.Errorf("read what the server serves: %w", err)
	}
	dyn, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	typed, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	return &applier{dyn, typed, restmapper.NewDiscoveryRESTMapper(groups)}, nil
}

func (a *applier) apply(ctx context.Context, obj *unstructured.Unstructured) error {
	gvk := obj.GroupVersionKind()
	m, err := a.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return err
	}
	data, err := obj.MarshalJSON()
	if err != nil {
		return err
	}
	var r dynamic.ResourceInterface = a.dynamic.Resource(m.Resource)
	if m.Scope.Name() == meta.RESTScopeNameNamespace {
		r = a.dynamic.Resource(m.Resource).Namespace(namespaceOf(obj))
	}
	_, err = r.Patch(ctx, obj.GetName(), types.ApplyPatchType, data, metav1.PatchOptions{FieldManager: "kemudi-up", Force: ptr.To(true)})
	return err
}

func namespaceOf(obj *unstructured.Unstructured) string {
	if ns := obj.GetNamespace(); ns != "" {
		return ns
	}
	return metav1.NamespaceDefault
}

// await waits until a Deployment is available or a Service answers, and returns
// where a service does.
func (a *applier) await(ctx context.Context, obj *unstructured.Unstructured, p *printer) (url string, err error) {
	switch obj.GroupVersionKind().GroupKind() {
	case schema.GroupKind{Group: "apps", Kind: "Deployment"}:
		if err := a.available(ctx, namespaceOf(obj), obj.GetName(), p); err != nil {
			return "", fmt.Errorf("wait for deployment %s: %w", obj.GetName(), err)
		}
		p.step("deployment " + obj.GetName() + " is available")
	case schema.GroupKind{Kind: "Service"}:
		url, err := a.url(ctx, namespaceOf(obj), obj.GetName())
		if err != nil || url == "" {
			return "", err
		}
		if err := answers(ctx, url); err != nil {
			return "", fmt.Errorf("wait for %s: %w", url, err)
		}
		p.step("service " + obj.GetName() + " answers at " + url)
		return url, nil
	}
	return "", nil
}

// sayAfter is how long to wait for a deployment in silence.
const sayAfter = 10 * time.Second

// available waits until all pods of a deployment are, and says now and then how
// many are and what keeps the others.
func (a *applier) available(ctx context.Context, namespace, name string, p *printer) error {
	for {
		d, err := a.rolledOut(ctx, namespace, name)
		if err == nil || ctx.Err() == nil && !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		how := ""
		if d != nil && d.Spec.Replicas != nil {
			how = fmt.Sprintf(": %d of %d pods are available", d.Status.AvailableReplicas, *d.Spec.Replicas)
		}
		// ctx may have ended: what was wrong must be said all the same.
		ask, cancel := context.WithTimeout(context.WithoutCancel(ctx), statusDeadline)
		if warning := a.lastWarning(ask, namespace, name); warning != "" {
			how += "\n" + warning
		}
		cancel()
		if ctx.Err() != nil {
			return fmt.Errorf("%w%s\nkubectl describe pods -n %s says more, and kemudi up goes on where it stopped", context.Cause(ctx), how, namespace)
		}
		p.note("waiting for deployment " + name + how)
	}
}

// rolledOut waits a while until all pods of a deployment are available. It
// returns what it saw last, also with an error.
func (a *applier) rolledOut(ctx context.Context, namespace, name string) (last *appsv1.Deployment, _ error) {
	ctx, cancel := context.WithTimeout(ctx, sayAfter)
	defer cancel()
	err := until(ctx, one(a.typed.AppsV1().RESTClient(), "deployments", namespace, name), func(d *appsv1.Deployment) bool {
		last = d
		return d.Status.ObservedGeneration >= d.Generation && d.Spec.Replicas != nil &&
			d.Status.UpdatedReplicas == *d.Spec.Replicas && d.Status.AvailableReplicas == *d.Spec.Replicas
	})
	return last, err
}

// lastWarning is the newest event that warns of a deployment, its sets or its
// pods; empty if there is none, or nobody who could tell.
func (a *applier) lastWarning(ctx context.Context, namespace, name string) (text string) {
	list, err := a.typed.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "type=" + corev1.EventTypeWarning})
	if err != nil {
		return ""
	}
	var newest time.Time
	for i := range list.Items {
		e := &list.Items[i]
		of := e.InvolvedObject.Name
		at := e.LastTimestamp.Time
		if e.Series != nil {
			at = e.Series.LastObservedTime.Time
		}
		if at.IsZero() {
			at = e.EventTime.Time
		}
		if (of == name || strings.HasPrefix(of, name+"-")) && (text == "" || at.After(newest)) {
			text, newest = strings.ToLower(e.InvolvedObject.Kind)+" "+of+": "+e.Reason+": "+e.Message, at
		}
	}
	return text
}

// url is where a NodePort service is reached from this machine; empty for others.
func (a *applier) url(ctx context.Context, namespace, name string) (string, error) {
	svc, err := a.typed.CoreV1().Services(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("get service %s: %w", name, err)
	}
	if svc.Spec.Type != corev1.ServiceTypeNodePort || len(svc.Spec.Ports) == 0 {
		return "", nil
	}
	nodes, err := a.typed.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", fmt.Errorf("list nodes: %w", err)
	}
	for _, n := range nodes.Items {
		for _, addr := range n.Status.Addresses {
			if addr.Type == corev1.NodeInternalIP {
				return fmt.Sprintf("http://%s:%d/", addr.Address, svc.Spec.Ports[0].NodePort), nil
			}
		}
	}
	return "", nil
}

// answers asks until the URL answers: what lies between an available pod and
// a rule in the kernel reports to nobody outside.
func answers(ctx context.Context, url string) error {
	// The address is this machine's: no proxy leads there.
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	wait := task.Backoff{Initial: 10 * time.Millisecond, Max: time.Second}
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
			err = errors.New(resp.Status)
		}
		if sleep := task.Sleep(ctx, wait.Next()); sleep != nil {
			return fmt.Errorf("%w (last: %w)", sleep, err)
		}
	}
}
