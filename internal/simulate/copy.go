package simulate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/kemudi/kemudi/internal/api"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/controllers"
	"github.com/kemudi/kemudi/internal/plane"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/store/mem"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/internal/watchcache"
)

// Object is one object of a cluster that is looked at.
type Object struct {
	Def    *resource.Def
	Object resource.Object
}

// Kinds are those that decide where pods may run, and what becomes of them: what is to be
// known of a cluster for Fit and Drain.
func Kinds() []*resource.Def {
	wanted := map[schema.GroupResource]bool{}
	for group, plurals := range map[string][]string{
		"":                  {"namespaces", "nodes", "pods", "services", "persistentvolumes", "persistentvolumeclaims", "replicationcontrollers", "limitranges", "resourcequotas"},
		"apps":              {"deployments", "replicasets", "statefulsets", "daemonsets", "controllerrevisions"},
		"batch":             {"jobs"},
		"policy":            {"poddisruptionbudgets"},
		"scheduling.k8s.io": {"priorityclasses"},
		"resource.k8s.io":   {"deviceclasses", "resourceclaims", "resourceclaimtemplates", "resourceslices"},
		"storage.k8s.io":    {"storageclasses", "csinodes", "csidrivers", "csistoragecapacities"},
	} {
		for _, plural := range plurals {
			wanted[schema.GroupResource{Group: group, Resource: plural}] = true
		}
	}
	var defs []*resource.Def
	for _, def := range api.All() {
		if wanted[schema.GroupResource{Group: def.Group, Resource: def.Plural}] {
			defs = append(defs, def)
		}
	}
	return defs
}

// ReadObjects reads what kubectl prints with -o yaml or -o json: objects and lists of them. What
// is of none of the kinds is left out; of none named are meant those in Kinds.
func ReadObjects(data []byte, kinds ...*resource.Def) ([]Object, error) {
	if len(kinds) == 0 {
		kinds = Kinds()
	}
	var out []Object
	for documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096); ; {
		var u unstructured.Unstructured
		if err := documents.Decode(&u.Object); err != nil {
			if errors.Is(err, io.EOF) {
				return out, nil
			}
			return nil, err
		}
		if len(u.Object) == 0 {
			continue
		}
		add := func(o *unstructured.Unstructured) error {
			data, err := o.MarshalJSON()
			if err != nil {
				return err
			}
			obj, err := readObject(data, kinds)
			if err == nil && obj != nil {
				out = append(out, *obj)
			}
			return err
		}
		if !u.IsList() {
			if err := add(&u); err != nil {
				return nil, err
			}
			continue
		}
		list, err := u.ToList()
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			if err := add(&list.Items[i]); err != nil {
				return nil, err
			}
		}
	}
}

// readObject reads one object in JSON; nil: it is of none of the kinds.
func readObject(data []byte, kinds []*resource.Def) (*Object, error) {
	var id struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Metadata   struct {
			Name string `json:"name"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(data, &id); err != nil {
		return nil, fmt.Errorf("read an object: %w", err)
	}
	for _, def := range kinds {
		if def.Kind != id.Kind || def.GVK().GroupVersion().String() != id.APIVersion {
			continue
		}
		obj := def.New()
		if err := json.Unmarshal(data, obj); err != nil {
			return nil, fmt.Errorf("read %s %s: %w", def, id.Metadata.Name, err)
		}
		def.Default(obj)
		return &Object{def, obj}, nil
	}
	return nil, nil
}

// Copy puts objects into a store as they are, their identities and what they say of themselves
// with them.
func Copy(ctx context.Context, st store.Store, objects []Object) error {
	for _, o := range objects {
		value, err := watchcache.Encode(o.Def, o.Object)
		if err != nil {
			return err
		}
		op := store.Op{Key: o.Def.Key(o.Object.GetNamespace(), o.Object.GetName()), Value: value}
		if _, err := st.Txn(ctx, store.Txn{Ops: []store.Op{op}}); err != nil {
			return fmt.Errorf("copy %s %s: %w", o.Def, o.Object.GetName(), err)
		}
	}
	return nil
}

// duplicate is a control plane in memory that has the objects of another cluster.
type duplicate struct {
	*plane.Plane
	g *task.Group
}

// newDuplicate returns when its API can be used; end it. Of the controllers only those that are
// named run.
func newDuplicate(ctx context.Context, objects []Object, running []string) (*duplicate, error) {
	st := mem.New(mem.Options{})
	if err := Copy(ctx, st, objects); err != nil {
		return nil, err
	}
	p, err := plane.New(plane.Options{
		Store: st, Logger: slog.New(slog.DiscardHandler), Host: "simulation",
		Controllers: controllers.Options{Enabled: running},
		Plugins:     plane.Plugins{Disable: []string{"ServiceAccount"}}, // the copy has none
	})
	if err != nil {
		return nil, err
	}
	d := &duplicate{p, task.NewGroup(ctx)}
	d.g.Go("control plane", p.Run)
	select {
	case <-p.Ready():
		return d, nil
	case <-d.g.Context().Done():
		return nil, d.end()
	}
}

func (d *duplicate) end() error {
	d.g.Cancel(context.Canceled)
	return d.g.Wait()
}

func (d *duplicate) api() client.Transport { return d.Admin() }
