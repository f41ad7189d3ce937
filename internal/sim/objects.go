package sim

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/yaml"

	"github.com/kemudi/kemudi/internal/api"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/resource"
)

// object names an object of the cluster; name is empty for all of a kind.
type object struct {
	def             *resource.Def
	namespace, name string
}

func (o object) key() string { return cache.Key(o.namespace, o.name) }

// kindNamed finds a resource by its plural, singular, kind or short name.
func kindNamed(name string) *resource.Def {
	for _, def := range api.All() {
		if name == def.Plural || name == def.Singular || name == def.Kind || name == def.String() {
			return def
		}
		for _, short := range def.Short {
			if name == short {
				return def
			}
		}
	}
	return nil
}

// objectArg reads the first argument as an object.
func objectArg(args []string) (object, []string, error) {
	if len(args) == 0 {
		return object{}, nil, errArgs
	}
	parts := strings.Split(args[0], "/")
	def := kindNamed(parts[0])
	if def == nil {
		return object{}, nil, fmt.Errorf("there is no kind %q", parts[0])
	}
	o := object{def: def}
	if def.Namespaced {
		o.namespace = "default"
	}
	switch len(parts) {
	case 1:
	case 2:
		o.name = parts[1]
	case 3:
		o.namespace, o.name = parts[1], parts[2]
	default:
		return object{}, nil, errArgs
	}
	return o, args[1:], nil
}

// eachObject calls fn with the objects in the files, as JSON.
func (r *run) eachObject(files []string, fn func(o object, data []byte) error) error {
	for _, file := range files {
		data, ok := r.files[file]
		if !ok {
			return fmt.Errorf("there is no file %s", file)
		}
		docs := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
		for {
			doc, err := docs.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return err
			}
			obj := &unstructured.Unstructured{}
			if err := yaml.Unmarshal(doc, &obj.Object); err != nil {
				return err
			}
			def := defOf(obj.GroupVersionKind())
			if def == nil {
				return fmt.Errorf("%s: there is no kind %s", file, obj.GroupVersionKind())
			}
			o := object{def: def, namespace: obj.GetNamespace(), name: obj.GetName()}
			if def.Namespaced && o.namespace == "" {
				o.namespace = "default"
			}
			encoded, err := obj.MarshalJSON()
			if err != nil {
				return err
			}
			if err := fn(o, encoded); err != nil {
				return fmt.Errorf("%s %s: %w", obj.GetKind(), obj.GetName(), err)
			}
		}
	}
	return nil
}

func defOf(gvk schema.GroupVersionKind) *resource.Def {
	for _, def := range api.All() {
		if def.GVK() == gvk {
			return def
		}
	}
	return nil
}

// selection is what get and wait-count look at.
type selection struct {
	object
	all     bool // namespaces
	sel     labels.Selector
	output  string
	timeout time.Duration
}

func parseSelection(args []string) (selection, []string, error) {
	o, args, err := objectArg(args)
	s := selection{object: o, timeout: 10 * time.Minute}
	var rest []string
	for i := 0; i < len(args) && err == nil; i++ {
		switch arg := args[i]; {
		case arg == "-A":
			s.all = true
		case arg == "-l" && i+1 < len(args):
			i++
			s.sel, err = labels.Parse(args[i])
		case arg == "-o" && i+1 < len(args):
			i++
			s.output = args[i]
		case strings.HasPrefix(arg, "timeout="):
			s.timeout, err = time.ParseDuration(strings.TrimPrefix(arg, "timeout="))
		default:
			rest = append(rest, arg)
		}
	}
	return s, rest, err
}

// computed are the objects of a kind that is not stored, newly made.
func (s *selection) computed(ctx context.Context, r *run) ([]*cache.Item, error) {
	req := &client.Request{Def: s.def, Namespace: s.namespace}
	if s.all {
		req.Namespace = ""
	}
	if s.sel != nil {
		req.List.LabelSelector = s.sel.String()
	}
	if s.name != "" {
		req.List.FieldSelector = "metadata.name=" + s.name
	}
	list, err := r.c.API().List(ctx, req)
	var items []*cache.Item
	for _, obj := range list.Items {
		items = append(items, &cache.Item{Key: cache.Key(obj.GetNamespace(), obj.GetName()), Object: obj})
	}
	return items, err
}

func (s *selection) items(r *run) []*cache.Item {
	c := r.c.API().Cache(s.def, "")
	if s.name != "" {
		if it := c.Get(s.key()); it != nil {
			return []*cache.Item{it}
		}
		return nil
	}
	namespace := s.namespace
	if s.all {
		namespace = ""
	}
	return c.List(namespace, s.sel)
}

func get(ctx context.Context, r *run, args []string) error {
	s, rest, err := parseSelection(args)
	if err != nil || len(rest) > 0 {
		return errors.Join(err, errArgs)
	}
	var items []*cache.Item
	if s.def.Stored() {
		items = s.items(r)
	} else if items, err = s.computed(ctx, r); err != nil {
		return err
	}
	if s.name != "" && len(items) == 0 {
		return fmt.Errorf("%s %q not found", s.def, s.name)
	}
	r.stdout, err = table(s.def, items, s.output)
	return err
}

// table shows objects as kubectl get would.
func table(def *resource.Def, items []*cache.Item, output string) (string, error) {
	var b strings.Builder
	if path, ok := strings.CutPrefix(output, "jsonpath="); ok {
		for _, it := range items {
			text, err := evaluate(path, it.Object)
			if err != nil {
				return "", err
			}
			b.WriteString(text + "\n")
		}
		return b.String(), nil
	}
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, it := range items {
		if output == "name" {
			fmt.Fprintln(w, def.Singular+"/"+it.Object.GetName())
			continue
		}
		fmt.Fprint(w, it.Object.GetName())
		for _, c := range def.Columns {
			if c.Name == "Name" || c.Priority > 0 && output != "wide" {
				continue
			}
			fmt.Fprintf(w, "\t%v", c.Value(it.Object))
		}
		fmt.Fprintln(w)
	}
	err := w.Flush()
	return b.String(), err
}

func evaluate(path string, obj resource.Object) (string, error) {
	j := jsonpath.New("get").AllowMissingKeys(true)
	if err := j.Parse(path); err != nil {
		return "", err
	}
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	err = j.Execute(&b, m)
	return b.String(), err
}

func events(_ context.Context, r *run, args []string) error {
	o, rest, err := objectArg(args)
	if err != nil || len(rest) > 0 {
		return errors.Join(err, errArgs)
	}
	var found []*corev1.Event
	for _, it := range r.c.API().Cache(core.Events.Def, "").List("", nil) {
		e := it.Object.(*corev1.Event)
		if e.InvolvedObject.Kind == o.def.Kind && e.InvolvedObject.Name == o.name {
			found = append(found, e)
		}
	}
	// Their names end in the nanosecond of their making, in digits of the same number.
	slices.SortStableFunc(found, func(a, b *corev1.Event) int {
		return cmp.Or(a.FirstTimestamp.Compare(b.FirstTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	var b strings.Builder
	for _, e := range found {
		fmt.Fprintf(&b, "%s %s %s\n", e.Type, e.Reason, e.Message)
	}
	r.stdout = b.String()
	return nil
}

// waitFor waits until an object passes a test.
func waitFor(ctx context.Context, r *run, args []string) error {
	s, rest, err := parseSelection(args)
	if err != nil || len(rest) != 1 || s.name == "" {
		return errors.Join(err, errArgs)
	}
	test, err := parseTest(rest[0])
	if err != nil {
		return err
	}
	return s.await(ctx, r, func() (bool, error) { return test(s.items(r)) })
}

// waitCount waits until so many objects exist.
func waitCount(ctx context.Context, r *run, args []string) error {
	s, rest, err := parseSelection(args)
	if err != nil || len(rest) != 1 {
		return errors.Join(err, errArgs)
	}
	n, err := strconv.Atoi(rest[0])
	if err != nil {
		return errArgs
	}
	return s.await(ctx, r, func() (bool, error) { return len(s.items(r)) == n, nil })
}

// await runs check after every change of the kind until it holds.
func (s *selection) await(ctx context.Context, r *run, check func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	f := r.c.API().Cache(s.def, "").Follow(cache.FollowOptions{})
	defer f.Close()
	for {
		ok, err := check()
		if ok || err != nil {
			return err
		}
		select {
		case <-f.Ready():
			f.Next()
		case <-ctx.Done():
			now, err := table(s.def, s.items(r), "wide")
			return errors.Join(fmt.Errorf("not within %s; now:\n%s", s.timeout, now), err)
		}
	}
}

type test func(items []*cache.Item) (bool, error)

func parseTest(text string) (test, error) {
	kind, rest, _ := strings.Cut(text, "=")
	switch kind {
	case "deleted":
		return func(items []*cache.Item) (bool, error) { return len(items) == 0, nil }, nil
	case "condition":
		name, status, ok := strings.Cut(rest, "=")
		if !ok {
			status = "True"
		}
		return equals(fmt.Sprintf(`{.status.conditions[?(@.type=="%s")].status}`, name), status), nil
	case "jsonpath":
		end := strings.LastIndex(rest, "}=")
		if end < 0 {
			return nil, errArgs
		}
		return equals(rest[:end+1], rest[end+2:]), nil
	}
	return nil, errArgs
}

func equals(path, want string) test {
	return func(items []*cache.Item) (bool, error) {
		if len(items) == 0 {
			return false, nil
		}
		got, err := evaluate(path, items[0].Object)
		return got == want, err
	}
}

// parseTaint reads key=value:Effect.
func parseTaint(text string) (corev1.Taint, error) {
	rest, effect, ok := strings.Cut(text, ":")
	if !ok {
		return corev1.Taint{}, errArgs
	}
	key, value, _ := strings.Cut(rest, "=")
	return corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)}, nil
}
