package manifest

import (
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/resource"
)

// Annotations of a pod that comes from a file or a URL.
const (
	AnnotationSource = "kubernetes.io/config.source" // "file" or "http"
	AnnotationHash   = "kubernetes.io/config.hash"   // its UID, which changes with its content
	AnnotationSeen   = "kubernetes.io/config.seen"   // when it was read first
)

// maxSize is how large a manifest may be.
const maxSize = 10 << 20

// Dir is a directory of manifests, one pod a file. Not for concurrent use.
type Dir struct {
	Path string
	Node string

	last map[string]*v1.Pod // by file: as it was when it could be read
}

// Load reads the manifests. A file that has become unreadable, as while it is
// being written, stays what it was; what is wrong with such files is the error.
// Of two pods with one name, that of the first file counts. Names that begin with
// a dot are passed over.
func (d *Dir) Load() ([]*v1.Pod, error) {
	entries, err := os.ReadDir(d.Path)
	if err != nil {
		return nil, fmt.Errorf("read manifests: %w", err)
	}
	now := map[string]*v1.Pod{}
	taken := map[string]string{}
	var out []*v1.Pod
	var errs []error
	for _, e := range entries {
		name := e.Name()
		if strings.HasPrefix(name, ".") {
			continue
		}
		pod, err := d.read(name)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNoFile) {
			continue
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("manifest %s: %w", filepath.Join(d.Path, name), err))
			if pod = d.last[name]; pod == nil {
				continue
			}
		}
		if old := d.last[name]; old != nil && old.UID == pod.UID {
			pod = old
		}
		now[name] = pod
		key := pod.Namespace + "/" + pod.Name
		if first := taken[key]; first != "" {
			errs = append(errs, fmt.Errorf("manifest %s: pod %s is in %s already", filepath.Join(d.Path, name), key, first))
			continue
		}
		taken[key] = name
		out = append(out, pod)
	}
	d.last = now
	return out, errors.Join(errs...)
}

var errNoFile = errors.New("not a file")

func (d *Dir) read(name string) (*v1.Pod, error) {
	path := filepath.Join(d.Path, name)
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errNoFile
	case info.Size() > maxSize:
		return nil, fmt.Errorf("has %d bytes, at most %d are read", info.Size(), maxSize)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return d.parse(path, data)
}

// parse makes of a manifest a pod of this node as the API would have it.
func (d *Dir) parse(path string, data []byte) (*v1.Pod, error) {
	pod := &v1.Pod{}
	if err := yaml.UnmarshalStrict(data, pod); err != nil {
		return nil, err
	}
	return origin{node: d.Node, source: "file", place: "host:" + d.Node + "\nfile:" + path}.pod(pod)
}

// origin is where manifests come from.
type origin struct {
	node   string // that runs their pods
	source string // upstream's word for it
	place  string // goes into the hash: another one makes another pod
}

// pod makes of what a manifest says a pod of the node as the API would have it.
func (o origin) pod(pod *v1.Pod) (*v1.Pod, error) {
	if pod.Kind != "Pod" || pod.APIVersion != "v1" {
		return nil, fmt.Errorf("holds %s %s, want v1 Pod", pod.APIVersion, pod.Kind)
	}
	if pod.Name == "" {
		return nil, errors.New("metadata.name: Required value")
	}
	pod.ResourceVersion, pod.OwnerReferences, pod.Finalizers, pod.Status = "", nil, nil, v1.PodStatus{Phase: v1.PodPending}
	pod.TypeMeta = metav1.TypeMeta{}
	pod.Name += "-" + strings.ToLower(o.node)
	if pod.Namespace == "" {
		pod.Namespace = metav1.NamespaceDefault
	}
	pod.Spec.NodeName = o.node
	pod.Spec.Tolerations = append(pod.Spec.Tolerations, v1.Toleration{Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute})
	hash, err := o.hash(pod)
	if err != nil {
		return nil, err
	}
	core.Pods.Default(pod)
	if err := check(pod); err != nil {
		return nil, err
	}
	now := metav1.Now()
	pod.UID, pod.CreationTimestamp = types.UID(hash), now.Rfc3339Copy()
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[AnnotationSource], pod.Annotations[AnnotationHash] = o.source, hash
	pod.Annotations[AnnotationSeen] = now.Format(time.RFC3339Nano)
	return pod, nil
}

// hash is of what the pod is and where it comes from: another file or node makes
// another pod.
func (o origin) hash(pod *v1.Pod) (string, error) {
	data, err := json.Marshal(pod)
	if err != nil {
		return "", fmt.Errorf("hash pod: %w", err)
	}
	h := md5.New()
	fmt.Fprintf(h, "%s\n%s", o.place, data)
	return hex.EncodeToString(h.Sum(nil)), nil
}

// check refuses what the API would refuse, and what needs the API to run.
func check(pod *v1.Pod) error {
	errs := resource.NewErrors()
	resource.ValidateMeta(pod, nil, core.Pods.Def, errs)
	core.Pods.Validate(pod, nil, errs)
	if errs.Len() > 0 {
		return errs.List().ToAggregate()
	}
	if len(pod.Spec.EphemeralContainers) > 0 {
		return errors.New("a static pod may not have ephemeral containers")
	}
	for ref := range core.References(pod) {
		if ref.Kind == core.ToServiceAccount {
			return errors.New("a static pod may not reference service accounts")
		}
		return fmt.Errorf("static pods can not reference API objects, and this one references %s: %q", ref.Kind, ref.Name)
	}
	return nil
}
