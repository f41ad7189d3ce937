package extender

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/rest"
	configv1 "k8s.io/kube-scheduler/config/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
)

// largestAnswer bounds what is read of an answer.
const largestAnswer = 64 << 20

// Extender is one of them. Its calls may be made side by side.
type Extender struct {
	// Client makes the calls; New sets it.
	Client *http.Client

	c       configv1.Extender
	managed map[string]bool
}

// New returns an extender as the configuration at a path says, or which field is wrong.
func New(c configv1.Extender, path *field.Path) (*Extender, *field.Error) {
	u, err := url.Parse(c.URLPrefix)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, field.Invalid(path.Child("urlPrefix"), c.URLPrefix, "must be a URL of http or https")
	}
	t, err := transport(&c)
	if err != nil {
		return nil, field.Invalid(path.Child("tlsConfig"), c.URLPrefix, err.Error())
	}
	e := &Extender{c: c, Client: &http.Client{Transport: t, Timeout: c.HTTPTimeout.Duration}, managed: map[string]bool{}}
	for _, r := range c.ManagedResources {
		e.managed[r.Name] = true
	}
	return e, nil
}

// transport is how an extender is reached. Without an authority to check it by, HTTPS
// that was asked for is not checked, as upstream.
func transport(c *configv1.Extender) (http.RoundTripper, error) {
	var r rest.Config
	if t := c.TLSConfig; t != nil {
		r.TLSClientConfig = rest.TLSClientConfig{
			Insecure: t.Insecure, ServerName: t.ServerName, CertFile: t.CertFile, KeyFile: t.KeyFile, CAFile: t.CAFile,
			CertData: t.CertData, KeyData: t.KeyData, CAData: t.CAData,
		}
	}
	if c.EnableHTTPS && r.CAFile == "" && len(r.CAData) == 0 {
		r.Insecure = true
	}
	tls, err := rest.TLSConfigFor(&r)
	if err != nil {
		return nil, err
	}
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.TLSClientConfig = tls
	return t, nil
}

// Name is the extender's URL.
func (e *Extender) Name() string { return e.c.URLPrefix }

// Ignorable says that pods are scheduled without it when it fails.
func (e *Extender) Ignorable() bool { return e.c.Ignorable }

// Filters, Prioritizes, Binds and Preempts say which verbs it has.
func (e *Extender) Filters() bool     { return e.c.FilterVerb != "" }
func (e *Extender) Prioritizes() bool { return e.c.PrioritizeVerb != "" }
func (e *Extender) Binds() bool       { return e.c.BindVerb != "" }
func (e *Extender) Preempts() bool    { return e.c.PreemptVerb != "" }

// Interested reports whether it is to be asked about a pod: if it manages
// resources, only about pods that ask for one of them.
func (e *Extender) Interested(p *corev1.Pod) bool {
	if len(e.managed) == 0 {
		return true
	}
	asks := func(list corev1.ResourceList) bool {
		for name := range list {
			if e.managed[string(name)] {
				return true
			}
		}
		return false
	}
	for _, containers := range [][]corev1.Container{p.Spec.Containers, p.Spec.InitContainers} {
		for i := range containers {
			if r := &containers[i].Resources; asks(r.Requests) || asks(r.Limits) {
				return true
			}
		}
	}
	return false
}

// args are a pod and nodes; an extender that has a cache of nodes gets their names.
func (e *Extender) args(p *corev1.Pod, nodes []*corev1.Node) *extenderv1.ExtenderArgs {
	a := &extenderv1.ExtenderArgs{Pod: p}
	if e.c.NodeCacheCapable {
		names := make([]string, len(nodes))
		for i, n := range nodes {
			names[i] = n.Name
		}
		a.NodeNames = &names
		return a
	}
	a.Nodes = &corev1.NodeList{Items: make([]corev1.Node, len(nodes))}
	for i, n := range nodes {
		a.Nodes.Items[i] = *n
	}
	return a
}

// Filtered is what an extender says of nodes.
type Filtered struct {
	Passed []*corev1.Node
	// Failed and Final are why others failed, by name: the latter fail whatever other pods do.
	Failed, Final map[string]string
}

// Filter asks which of the nodes a pod may go to.
func (e *Extender) Filter(ctx context.Context, p *corev1.Pod, nodes []*corev1.Node) (Filtered, error) {
	var r extenderv1.ExtenderFilterResult
	if err := e.send(ctx, e.c.FilterVerb, e.args(p, nodes), &r); err != nil {
		return Filtered{}, err
	}
	if r.Error != "" {
		return Filtered{}, errors.New(r.Error)
	}
	var names []string
	switch {
	case e.c.NodeCacheCapable && r.NodeNames != nil:
		names = *r.NodeNames
	case r.Nodes != nil:
		for i := range r.Nodes.Items {
			names = append(names, r.Nodes.Items[i].Name)
		}
	}
	byName := make(map[string]*corev1.Node, len(nodes))
	for _, n := range nodes {
		byName[n.Name] = n
	}
	f := Filtered{Failed: r.FailedNodes, Final: r.FailedAndUnresolvableNodes}
	for _, name := range names {
		n := byName[name]
		if n == nil {
			return Filtered{}, fmt.Errorf("extender %q claims a filtered node %q which is not found in the input node list", e.c.URLPrefix, name)
		}
		f.Passed = append(f.Passed, n)
	}
	return f, nil
}

// Prioritize asks how good nodes are, and returns what to add to their scores.
func (e *Extender) Prioritize(ctx context.Context, p *corev1.Pod, nodes []*corev1.Node) (map[string]int64, error) {
	var list extenderv1.HostPriorityList
	if err := e.send(ctx, e.c.PrioritizeVerb, e.args(p, nodes), &list); err != nil {
		return nil, err
	}
	const stretch = 100 / extenderv1.MaxExtenderPriority // to the scores of plugins
	scores := make(map[string]int64, len(list))
	for _, h := range list {
		scores[h.Host] += h.Score * e.c.Weight * stretch
	}
	return scores, nil
}

// Bind has the extender bind a pod.
func (e *Extender) Bind(ctx context.Context, b *corev1.Binding) error {
	var r extenderv1.ExtenderBindingResult
	args := &extenderv1.ExtenderBindingArgs{PodName: b.Name, PodNamespace: b.Namespace, PodUID: b.UID, Node: b.Target.Name}
	if err := e.send(ctx, e.c.BindVerb, args, &r); err != nil {
		return err
	}
	if r.Error != "" {
		return errors.New(r.Error)
	}
	return nil
}

// Preempt asks which of the nodes, each with the pods that would have to go, are to
// be considered; it may name other pods.
func (e *Extender) Preempt(ctx context.Context, p *corev1.Pod, victims map[string]*extenderv1.Victims) (map[string]*extenderv1.MetaVictims, error) {
	args := &extenderv1.ExtenderPreemptionArgs{Pod: p}
	if e.c.NodeCacheCapable {
		args.NodeNameToMetaVictims = map[string]*extenderv1.MetaVictims{}
		for node, v := range victims {
			meta := &extenderv1.MetaVictims{Pods: []*extenderv1.MetaPod{}, NumPDBViolations: v.NumPDBViolations}
			for _, pod := range v.Pods {
				meta.Pods = append(meta.Pods, &extenderv1.MetaPod{UID: string(pod.UID)})
			}
			args.NodeNameToMetaVictims[node] = meta
		}
	} else {
		args.NodeNameToVictims = victims
	}
	var r extenderv1.ExtenderPreemptionResult
	if err := e.send(ctx, e.c.PreemptVerb, args, &r); err != nil {
		return nil, err
	}
	for node, v := range r.NodeNameToMetaVictims {
		if v != nil && len(v.Pods) > 0 {
			continue
		}
		if !e.c.Ignorable {
			return nil, fmt.Errorf("expected at least one victim pod on node %q", node)
		}
		delete(r.NodeNameToMetaVictims, node)
	}
	return r.NodeNameToMetaVictims, nil
}

// send makes one call.
func (e *Extender) send(ctx context.Context, verb string, args, result any) error {
	body, err := json.Marshal(args)
	if err != nil {
		return fmt.Errorf("encode call of extender: %w", err)
	}
	at := strings.TrimRight(e.c.URLPrefix, "/") + "/" + verb
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, at, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("call extender: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := e.Client.Do(req)
	if err != nil {
		return err // says verb and URL
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("failed %v with extender at URL %v, code %v", verb, at, resp.StatusCode)
	}
	answer, err := io.ReadAll(io.LimitReader(resp.Body, largestAnswer+1))
	if err != nil {
		return fmt.Errorf("read answer of extender at URL %v: %w", at, err)
	}
	if len(answer) > largestAnswer {
		return fmt.Errorf("answer of extender at URL %v is larger than %d bytes", at, largestAnswer)
	}
	if err := json.Unmarshal(answer, result); err != nil {
		return fmt.Errorf("decode answer of extender at URL %v: %w", at, err)
	}
	return nil
}
