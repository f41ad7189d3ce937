package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/simulate"
	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/store/etcd"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/internal/up"
	"github.com/kemudi/kemudi/internal/watchcache"
)

// Simulation says what `kemudi simulate` runs, each field by its flag.
type Simulation struct {
	DataDir    string // --data-dir; default .kemudi/simulation in the user's home
	RunDir     string // --run-dir; default one of the user's among temporary files
	SecurePort uint16 // --secure-port
	Nodes      int    // --nodes, if there is no profile
	Profile    string // --profile: a file of pools
	From       string // --from: a kubeconfig, what kubectl printed, or a snapshot of an etcd; empty: an empty cluster
}

// DefaultSimulation is a simulation that is told nothing, as its flags show it.
func DefaultSimulation() Simulation { return Simulation{SecurePort: 7443, Nodes: 3} }

// withDirs fills in the directories.
func (s Simulation) withDirs() Simulation {
	if s.DataDir == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			home = os.TempDir()
		}
		s.DataDir = filepath.Join(home, ".kemudi", "simulation")
	}
	if s.RunDir == "" {
		s.RunDir = filepath.Join(os.TempDir(), fmt.Sprintf("kemudi-simulation-%d", os.Getuid()))
	}
	return s
}

// Simulate runs a server whose nodes live in the API alone, until ctx ends. It needs no root. o has
// the logger, and what is told of the steps of the start.
func Simulate(ctx context.Context, o Options, s Simulation) error {
	s = s.withDirs()
	profile, err := s.profile()
	if err != nil {
		return err
	}
	if s.From != "" {
		objects, err := Objects(ctx, s.From)
		if err != nil {
			return err
		}
		o.seed = func(ctx context.Context, st store.Store) error { return seed(ctx, st, objects) }
	}
	o.NoNode, o.DataDir, o.RunDir, o.SecurePort = true, s.DataDir, s.RunDir, s.SecurePort
	o.Controllers.Enabled = append(o.Controllers.Enabled, "-node-ipam-controller") // simulated nodes have addresses of their own
	o.BindAddress = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	o.also = func(ctx context.Context, t client.Transport) error {
		return simulate.New(simulate.Options{Pools: profile.Pools, Transport: t, Logger: o.Logger}).Run(ctx)
	}
	return Run(ctx, o)
}

// SimulationKubeconfig is the file by which a simulation is reached.
func SimulationKubeconfig(s Simulation) string { return up.AdminKubeconfig(s.withDirs().DataDir) }

func (s *Simulation) profile() (*simulate.Profile, error) {
	if s.Profile == "" {
		if s.Nodes < 0 {
			return nil, fmt.Errorf("--nodes %d is negative", s.Nodes)
		}
		if s.From != "" {
			return &simulate.Profile{}, nil // it has nodes
		}
		return simulate.OnePool(s.Nodes)
	}
	data, err := os.ReadFile(s.Profile)
	if err != nil {
		return nil, fmt.Errorf("--profile: %w", err)
	}
	profile, err := simulate.ParseProfile(data)
	if err != nil {
		return nil, fmt.Errorf("--profile %s: %w", s.Profile, err)
	}
	return profile, nil
}

// seed puts the objects of another cluster into a store that is empty, its nodes as simulated ones; of one that is not, nothing
// is touched.
func seed(ctx context.Context, st store.Store, objects []simulate.Object) error {
	page, err := st.List(ctx, "/registry/", store.ListOptions{Limit: 1})
	if err != nil {
		return fmt.Errorf("look into the store: %w", err)
	}
	if len(page.KVs) > 0 {
		return errors.New("--from: the data directory has a cluster already: name another one, or remove it")
	}
	simulate.Take(objects)
	return simulate.Copy(ctx, st, objects)
}

// readTimeout is how long it may take to read one kind of objects of a cluster.
const readTimeout = 2 * time.Minute

// Objects reads what decides where pods run: from the cluster of a kubeconfig (empty: the simulation
// that runs in its own place), from a file as kubectl prints it with -o yaml or -o json, or from a
// snapshot of its etcd.
func Objects(ctx context.Context, from string) ([]simulate.Object, error) {
	if from == "" {
		from = SimulationKubeconfig(DefaultSimulation())
		if _, err := os.Stat(from); errors.Is(err, fs.ErrNotExist) {
			return nil, errors.New("no simulation has run here (kemudi simulate starts one): --from says which cluster is meant, by its kubeconfig, say")
		}
	}
	return objectsOf(ctx, from, simulate.Kinds())
}

func objectsOf(ctx context.Context, from string, kinds []*resource.Def) ([]simulate.Object, error) {
	if is, err := etcd.IsSnapshot(from); err != nil {
		return nil, fmt.Errorf("read a cluster: %w", err)
	} else if is {
		return fromSnapshot(from, kinds)
	}
	data, err := os.ReadFile(from)
	if err != nil {
		return nil, fmt.Errorf("read a cluster: %w", err)
	}
	if config, err := clientcmd.RESTConfigFromKubeConfig(data); err == nil {
		return fetch(ctx, config, kinds)
	}
	objects, err := simulate.ReadObjects(data, kinds...)
	if err == nil && len(objects) == 0 {
		err = errors.New("there are no objects in it, nor is it a kubeconfig")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", from, err)
	}
	return objects, nil
}

// fromSnapshot reads the objects that a cluster had when a snapshot of its etcd was made.
func fromSnapshot(file string, kinds []*resource.Def) ([]simulate.Object, error) {
	list, err := etcd.ReadSnapshot(file, "/registry/")
	if err != nil {
		return nil, err
	}
	var all []simulate.Object
	for _, def := range kinds {
		prefix := "/registry/" + def.StoragePrefix + "/"
		for _, kv := range list {
			if !strings.HasPrefix(kv.Key, prefix) {
				continue
			}
			obj, err := watchcache.Decode(def, kv.Value, kv.Rev)
			if err != nil {
				return nil, fmt.Errorf("%s: %s: %w", file, kv.Key, err)
			}
			all = append(all, simulate.Object{Def: def, Object: obj})
		}
	}
	return all, nil
}

// fetch reads the objects of a cluster, kind by kind.
func fetch(ctx context.Context, config *rest.Config, kinds []*resource.Def) ([]simulate.Object, error) {
	config.NegotiatedSerializer, config.GroupVersion = scheme.Codecs.WithoutConversion(), &corev1.SchemeGroupVersion
	config.QPS = -1
	c, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("read a cluster: %w", err)
	}
	var all []simulate.Object
	g := task.NewGroup(ctx)
	lists := make([][]simulate.Object, len(kinds))
	for i, def := range kinds {
		g.Go("read "+def.String(), func(ctx context.Context) (err error) {
			ctx, cancel := context.WithTimeout(ctx, readTimeout)
			defer cancel()
			lists[i], err = list(ctx, c, def)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	for _, l := range lists {
		all = append(all, l...)
	}
	return all, nil
}

func list(ctx context.Context, c rest.Interface, def *resource.Def) ([]simulate.Object, error) {
	path := "/apis/" + def.Group + "/" + def.Version + "/" + def.Plural
	if def.Group == "" {
		path = "/api/" + def.Version + "/" + def.Plural
	}
	data, err := c.Get().AbsPath(path).SetHeader("Accept", "application/json").DoRaw(ctx)
	if apierrors.IsNotFound(err) {
		return nil, nil // an older cluster, which does not know the kind
	}
	if def == core.Secrets.Def && apierrors.IsForbidden(err) {
		return nil, nil // who may not read them is told of all else
	}
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", def, err)
	}
	var l struct {
		Items []json.RawMessage `json:"items"` // which say of themselves neither version nor kind
	}
	if err := json.Unmarshal(data, &l); err != nil {
		return nil, fmt.Errorf("list %s: %w", def, err)
	}
	out := make([]simulate.Object, len(l.Items))
	for i, item := range l.Items {
		obj := def.New()
		if err := json.Unmarshal(item, obj); err != nil {
			return nil, fmt.Errorf("list %s: %w", def, err)
		}
		def.Default(obj)
		out[i] = simulate.Object{Def: def, Object: obj}
	}
	return out, nil
}

// Fit says how many more of the pod in a file fit into a cluster.
func Fit(ctx context.Context, from, file string, most int) (*simulate.Fitting, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the pod: %w", err)
	}
	pod, err := podOf(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	objects, err := Objects(ctx, from)
	if err != nil {
		return nil, err
	}
	return simulate.Fit(ctx, objects, pod, most)
}

// podOf is the first pod of a document: one itself, or the template of something that has
// one.
func podOf(data []byte) (*corev1.Pod, error) {
	var o struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
		Spec     struct {
			corev1.PodSpec
			Template    *corev1.PodTemplateSpec `json:"template"`
			JobTemplate *struct {
				Spec struct {
					Template corev1.PodTemplateSpec `json:"template"`
				} `json:"spec"`
			} `json:"jobTemplate"`
		} `json:"spec"`
	}
	first, _, _ := bytes.Cut(bytes.TrimPrefix(data, []byte("---\n")), []byte("\n---"))
	if err := yaml.Unmarshal(first, &o); err != nil {
		return nil, err
	}
	pod := &corev1.Pod{ObjectMeta: o.Metadata, Spec: o.Spec.PodSpec}
	template := o.Spec.Template
	if j := o.Spec.JobTemplate; j != nil {
		template = &j.Spec.Template
	}
	if template != nil {
		pod.Labels, pod.Spec = template.Labels, template.Spec
	}
	if len(pod.Spec.Containers) == 0 {
		return nil, errors.New("it is neither a pod nor has it a template of one")
	}
	return pod, nil
}

// DrainOf says what happens when a node of a cluster is drained.
func DrainOf(ctx context.Context, from, node string, wait time.Duration) (*simulate.Drained, error) {
	objects, err := Objects(ctx, from)
	if err != nil {
		return nil, err
	}
	return simulate.Drain(ctx, objects, node, wait)
}
