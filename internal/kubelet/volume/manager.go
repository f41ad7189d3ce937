package volume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/api/core/claims"
	"github.com/kemudi/kemudi/internal/api/core/csi"
	"github.com/kemudi/kemudi/internal/kubelet/cri"
	"github.com/kemudi/kemudi/internal/kubelet/san"
	"github.com/kemudi/kemudi/internal/kubelet/users"
)

// Sources is where the content of volumes comes from.
type Sources interface {
	ConfigMap(namespace, name string) (*v1.ConfigMap, error)
	Secret(namespace, name string) (*v1.Secret, error)
	// TrustBundles returns the bundles of a projection, at least one.
	TrustBundles(p *v1.ClusterTrustBundleProjection) ([]*certificatesv1.ClusterTrustBundle, error)
	// IsMissing reports whether an error says that there is no such object.
	IsMissing(err error) bool
	// Token asks for a service account token bound to the pod.
	Token(ctx context.Context, pod *v1.Pod, p *v1.ServiceAccountTokenProjection) (Token, error)
	// RequestCertificate asks for a certificate of the pod's and returns the request's name. CertificateRequest is one
	// that was made so; where there is none, or it is not seen yet, IsMissing knows the error.
	RequestCertificate(ctx context.Context, pod *v1.Pod, p *v1.PodCertificateProjection, stubPKCS10 []byte) (name string, err error)
	CertificateRequest(ctx context.Context, pod *v1.Pod, name string) (*certificatesv1.PodCertificateRequest, error)
	Teller
	// Field and ResourceField are the downward API's.
	Field(pod *v1.Pod, path string) (string, error)
	ResourceField(pod *v1.Pod, ref *v1.ResourceFieldSelector) (string, error)
}

// Teller warns people of a pod.
type Teller interface {
	TellOf(pod *v1.Pod, reason, message string)
}

// Manager makes and removes the volumes of the pods of a node. Calls for
// different pods may be made concurrently, those for one pod not.
type Manager struct {
	root  string
	node  *cri.Node
	log   *slog.Logger
	san   san.Machine
	turns turns // of devices

	mu struct {
		sync.Mutex
		tokens       map[tokenKey]Token
		certificates map[tokenKey]*certificate // by the number of their source instead of a path
	}
}

type tokenKey struct {
	pod          types.UID
	volume, path string
}

// NewManager returns a manager of the volumes of a node below root, which is made if needed.
func NewManager(root string, node *cri.Node, log *slog.Logger) (*Manager, error) {
	if err := os.MkdirAll(root, 0o750); err != nil {
		return nil, fmt.Errorf("make directory of pods: %w", err)
	}
	m := &Manager{root: root, node: node, log: log, san: san.Machine{Root: "/"}}
	m.mu.tokens, m.mu.certificates = map[tokenKey]Token{}, map[tokenKey]*certificate{}
	return m, nil
}

// PodDir is the directory of all that the pod has on the node.
func (m *Manager) PodDir(uid types.UID) string { return filepath.Join(m.root, string(uid)) }

// MountError is a volume that could not be made.
type MountError struct {
	Step   string // that has failed; empty: "MountVolume.SetUp"
	Volume string
	Device bool // the pod wants the bare device
	Err    error
}

func (e *MountError) Error() string {
	return fmt.Sprintf("%s failed for volume %q : %v", cmp.Or(e.Step, "MountVolume.SetUp"), e.Volume, e.Err)
}

func (e *MountError) Unwrap() error { return e.Err }

// Prepare makes all volumes of the pod that containers use and that are not there, except persistent ones, and brings written
// ones up to date. It returns when it must be called again to keep tokens fresh
// (zero: never). An error may join several MountErrors.
func (m *Manager) Prepare(ctx context.Context, pod *v1.Pod, src Sources) (again time.Time, err error) {
	var errs []error
	used := Uses(pod)
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if _, ok := used[v.Name]; !ok {
			continue
		}
		next, err := m.prepare(ctx, pod, v, src)
		if err != nil {
			errs = append(errs, &MountError{Volume: v.Name, Err: err})
			continue
		}
		again = Sooner(again, next)
	}
	return again, errors.Join(errs...)
}

// Sooner is the earlier one of two times, of which zero means never.
func Sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// prepare makes one volume.
func (m *Manager) prepare(ctx context.Context, pod *v1.Pod, v *v1.Volume, src Sources) (time.Time, error) {
	switch {
	case v.HostPath != nil:
		return time.Time{}, checkHostPath(v.HostPath)
	case v.EmptyDir != nil:
		return time.Time{}, m.emptyDir(pod, v)
	case v.Image != nil:
		return time.Time{}, nil // the runtime mounts it
	case v.NFS != nil:
		e := export{NFSVolumeSource: v.NFS, readOnly: v.NFS.ReadOnly}
		return time.Time{}, e.mount(ctx, m.Path(pod, v))
	case v.CSI != nil:
		return time.Time{}, nil // its driver makes it
	case claims.OfVolume(pod, v) != "" || v.ISCSI != nil || v.FC != nil || csi.Inline(v, pod.Namespace) != nil:
		return time.Time{}, nil // see Place
	}
	w := &writer{ctx: ctx, m: m, pod: pod, volume: v, src: src, files: map[string]file{}}
	if err := w.collect(); err != nil {
		return time.Time{}, err
	}
	dir := m.Path(pod, v)
	if w.memory {
		if err := ensureTmpfs(dir, 0, FSGroup(pod)); err != nil {
			return time.Time{}, err
		}
	}
	return w.again, replaceContent(dir, w.files, FSGroup(pod))
}

// volumeDir is the pod's directory of a volume of a kind.
func (m *Manager) volumeDir(pod types.UID, kind, name string) string {
	return filepath.Join(m.PodDir(pod), "volumes", "kubernetes.io~"+kind, name)
}

// Path is where a volume of the pod lies on the node; empty if it does not.
func (m *Manager) Path(pod *v1.Pod, v *v1.Volume) string {
	if v.HostPath != nil {
		return v.HostPath.Path
	}
	if v.CSI != nil {
		return filepath.Join(m.volumeDir(pod.UID, "csi", v.Name), "mount")
	}
	if k := kind(v); k != "" {
		return m.volumeDir(pod.UID, k, v.Name)
	}
	path, err := os.Readlink(m.link(pod.UID, v.Name))
	if err != nil {
		return ""
	}
	return path
}

// kind names the volume's plugin as upstream's directories do.
func kind(v *v1.Volume) string {
	switch {
	case v.EmptyDir != nil:
		return "empty-dir"
	case v.ConfigMap != nil:
		return "configmap"
	case v.Secret != nil:
		return "secret"
	case v.Projected != nil:
		return "projected"
	case v.DownwardAPI != nil:
		return "downward-api"
	case v.NFS != nil:
		return "nfs"
	}
	return ""
}

// Made reports whether the node makes what a volume holds, beside others, below the pod's directory.
func Made(v *v1.Volume) bool { return kind(v) != "" && v.NFS == nil }

// PluginAt is what metrics call the plugin of a persistent volume that a pod has at a path, as far as that tells it; empty: it does
// not.
func (m *Manager) PluginAt(pod types.UID, path string) string {
	if kind, _ := m.sharedKind(path); kind != "" {
		return "kubernetes.io/" + kind
	}
	switch filepath.Dir(path) {
	case m.ownDir():
		return "kubernetes.io/csi:" + claims.LocalDriver
	case m.volumeDir(pod, "nfs", ""):
		return "kubernetes.io/nfs"
	}
	return ""
}

// Plugin is what metrics call the plugin that makes a volume; of a claim, what stands for all plugins.
func Plugin(v *v1.Volume) string {
	switch {
	case v.HostPath != nil:
		return "kubernetes.io/host-path"
	case v.CSI != nil:
		return "kubernetes.io/csi:" + v.CSI.Driver
	case v.Image != nil:
		return "kubernetes.io/image"
	case v.ISCSI != nil:
		return "kubernetes.io/iscsi"
	case v.FC != nil:
		return "kubernetes.io/fc"
	}
	if k := kind(v); k != "" {
		return "kubernetes.io/" + k
	}
	return "kubernetes.io/persistent-volume"
}

// ReadOnly reports whether containers may not write to a volume: it is of such a
// kind, or the pod wants it so.
func ReadOnly(v *v1.Volume) bool {
	if v.PersistentVolumeClaim != nil {
		return v.PersistentVolumeClaim.ReadOnly
	}
	if v.CSI != nil {
		return isTrue(v.CSI.ReadOnly)
	}
	switch {
	case v.NFS != nil:
		return v.NFS.ReadOnly
	case v.ISCSI != nil:
		return v.ISCSI.ReadOnly
	case v.FC != nil:
		return v.FC.ReadOnly
	}
	return Written(v) || v.Image != nil
}

// FSGroup is the group that the volumes of a pod are given to; nil: none.
func FSGroup(pod *v1.Pod) *int64 {
	if sc := pod.Spec.SecurityContext; sc != nil {
		return sc.FSGroup
	}
	return nil
}

// ReleaseParts unmounts what containers of the pod had of parts of volumes, so that the volumes can be unmounted.
func (m *Manager) ReleaseParts(uid types.UID) error {
	if uid == "" || filepath.Base(string(uid)) != string(uid) {
		return fmt.Errorf("release parts of volumes: bad pod UID %q", uid)
	}
	if err := unmountBelow(filepath.Join(m.PodDir(uid), "volume-subpaths")); err != nil {
		return fmt.Errorf("release parts of volumes: %w", err)
	}
	return nil
}

// CleanUp removes all that the pod has on the node (V2), except its directory
// and, in it, which user IDs it has: as long as it is there it says whose logs
// may be left.
func (m *Manager) CleanUp(ctx context.Context, uid types.UID) error {
	m.mu.Lock()
	of := func(k tokenKey) bool { return k.pod == uid }
	maps.DeleteFunc(m.mu.tokens, func(k tokenKey, _ Token) bool { return of(k) })
	maps.DeleteFunc(m.mu.certificates, func(k tokenKey, _ *certificate) bool { return of(k) })
	m.mu.Unlock()
	if uid == "" || filepath.Base(string(uid)) != string(uid) {
		return fmt.Errorf("clean up volumes: bad pod UID %q", uid)
	}
	dir := m.PodDir(uid)
	if err := errors.Join(unmountBelow(dir), m.releaseShared(ctx, uid)); err != nil {
		return fmt.Errorf("clean up volumes: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("clean up volumes: %w", err)
	}
	for _, e := range entries {
		if e.Name() == users.File {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return fmt.Errorf("clean up volumes: %w", err)
		}
	}
	return nil
}

// Forget removes the directory that CleanUp has emptied, once nothing of the pod
// is left on the node.
func (m *Manager) Forget(uid types.UID) error {
	if err := os.Remove(m.PodDir(uid)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget pod: %w", err)
	}
	return nil
}

// Pods lists the pods that have something on the node (V3).
func (m *Manager) Pods() ([]types.UID, error) {
	entries, err := os.ReadDir(m.root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list pods on disk: %w", err)
	}
	var out []types.UID
	for _, e := range entries {
		if e.IsDir() {
			out = append(out, types.UID(e.Name()))
		}
	}
	return out, nil
}
