package image

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/distribution/reference"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	config "k8s.io/kubelet/config/v1beta1"

	"github.com/kemudi/kemudi/internal/wholefile"
)

// Records say by whose credentials the images of a node were pulled, in upstream's files: one for each image that
// was, and one for each pull that is under way. They outlive the agent. Their methods may be called concurrently;
// those of nil Records know of nothing and remember nothing.
type Records struct {
	dir  string
	turn chan struct{} // buffered: who holds its token changes what was pulled
	mu   struct {
		sync.Mutex
		pulling map[string]int // pulls under way, by the image's name
	}
}

// RecordsDir is the directory of records below an agent's root directory.
const RecordsDir = "image_manager"

// mostSecrets is how many secrets that have turned out to be as good as one of an image's are added to its record.
const mostSecrets = 100

// NewRecords returns those that are kept in a directory, which need not be there yet.
func NewRecords(dir string) *Records {
	r := &Records{dir: dir, turn: make(chan struct{}, 1)}
	r.mu.pulling = map[string]int{}
	return r
}

// path is the file about a name of one of both kinds, "pulling" and "pulled".
func (r *Records) path(kind, name string) string {
	return filepath.Join(r.dir, kind, fmt.Sprintf("sha256-%x", sha256.Sum256([]byte(name))))
}

// count is how many there are of one of both kinds.
func (r *Records) count(kind string) float64 {
	files, _ := os.ReadDir(filepath.Join(r.dir, kind)) // a directory that is not there yet has none
	return float64(len(files))
}

func writeRecord(path string, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return wholefile.Private(path, data)
}

func recordKind(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: config.SchemeGroupVersion.String(), Kind: kind}
}

// begin notes that an image is going to be pulled: should the agent end meanwhile, it is known of the image that it
// has not been there before.
func (r *Records) begin(image string) error {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	r.mu.pulling[image]++
	first := r.mu.pulling[image] == 1
	r.mu.Unlock()
	if !first {
		return nil
	}
	if err := writeRecord(r.path("pulling", image), config.ImagePullIntent{TypeMeta: recordKind("ImagePullIntent"), Image: image}); err != nil {
		return fmt.Errorf("note that image %s is pulled: %w", image, err)
	}
	return nil
}

// end notes that a pull of the image is over. What has come of it must have been noted before: if that has not worked,
// unnoted says so, and the image counts as one that somebody has pulled.
func (r *Records) end(image string, unnoted bool) {
	if r == nil {
		return
	}
	r.mu.Lock()
	r.mu.pulling[image]--
	last := r.mu.pulling[image] == 0
	if last {
		delete(r.mu.pulling, image)
	}
	r.mu.Unlock()
	if last && !unnoted {
		_ = os.Remove(r.path("pulling", image)) // one that stays says nothing about an image of which there is a record
	}
}

// of returns by which credentials an image that is there has been pulled by the name, and whether it is an agent that
// has brought it. An error says that this cannot be told.
func (r *Records) of(name string, im *runtimeapi.Image) (used config.ImagePullCredentials, pulled bool, err error) {
	if r == nil {
		return used, false, nil
	}
	record, err := r.read(im.Id)
	if err != nil {
		return used, true, err
	}
	repo := repository(name)
	if record != nil {
		if used, ok := record.CredentialMapping[repo]; ok {
			return used, true, nil
		}
	}
	r.mu.Lock()
	under := r.mu.pulling[name] > 0
	r.mu.Unlock()
	if under {
		return used, true, nil
	}
	switch _, err := os.Stat(r.path("pulling", name)); {
	case err == nil:
		return used, true, nil
	case !errors.Is(err, fs.ErrNotExist):
		return used, true, fmt.Errorf("look whether image %s was being pulled: %w", name, err)
	}
	// Others may have brought by this name what has been pulled by another one, but its bare ID is no name.
	named := func(name string) bool { return repository(name) == repo }
	return used, record != nil && !slices.ContainsFunc(im.RepoTags, named) && !slices.ContainsFunc(im.RepoDigests, named), nil
}

// read returns the record of an image, nil if there is none.
func (r *Records) read(id string) (*config.ImagePulledRecord, error) {
	record, err := readRecord(r.path("pulled", id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read who has pulled image %s: %w", id, err)
	}
	return record, nil
}

func readRecord(path string) (*config.ImagePulledRecord, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	record := &config.ImagePulledRecord{}
	return record, json.Unmarshal(data, record)
}

// add notes that the image of an ID has been pulled by the name, or could have been, by these credentials.
func (r *Records) add(name, id string, used config.ImagePullCredentials) error {
	if r == nil {
		return nil
	}
	r.turn <- struct{}{} // a moment: others write a file
	defer func() { <-r.turn }()
	record, err := r.read(id)
	if record == nil || err != nil { // one that cannot be read is made anew
		record = &config.ImagePulledRecord{TypeMeta: recordKind("ImagePulledRecord"), ImageRef: id}
	}
	repo := repository(name)
	known, ok := record.CredentialMapping[repo]
	merged, changed := merge(known, used)
	if ok && !changed {
		return nil
	}
	if record.CredentialMapping == nil {
		record.CredentialMapping = map[string]config.ImagePullCredentials{}
	}
	record.CredentialMapping[repo], record.LastUpdatedTime = merged, metav1.Now()
	if err := writeRecord(r.path("pulled", id), record); err != nil {
		return fmt.Errorf("note who has pulled image %s: %w", id, err)
	}
	return nil
}

// merge is what is known of credentials with others added: one secret has one hash, and where all pods of the node may
// use an image, secrets and service accounts do not matter.
func merge(known, more config.ImagePullCredentials) (config.ImagePullCredentials, bool) {
	switch {
	case known.NodePodsAccessible:
		return known, false
	case more.NodePodsAccessible:
		return config.ImagePullCredentials{NodePodsAccessible: true}, true
	}
	changed := false
	known.KubernetesSecrets = slices.Clone(known.KubernetesSecrets)
	for _, s := range more.KubernetesSecrets {
		i := slices.IndexFunc(known.KubernetesSecrets, func(k config.ImagePullSecret) bool { return sameSecret(&k, &s) })
		switch {
		case i < 0:
			known.KubernetesSecrets, changed = append(known.KubernetesSecrets, s), true
		case known.KubernetesSecrets[i] != s:
			known.KubernetesSecrets[i], changed = s, true
		}
	}
	known.KubernetesServiceAccounts = slices.Clone(known.KubernetesServiceAccounts)
	for _, a := range more.KubernetesServiceAccounts {
		if !slices.Contains(known.KubernetesServiceAccounts, a) {
			known.KubernetesServiceAccounts, changed = append(known.KubernetesServiceAccounts, a), true
		}
	}
	return known, changed
}

// sameSecret reports whether both are of one secret, whatever it has held.
func sameSecret(a, b *config.ImagePullSecret) bool {
	return a.UID == b.UID && a.Namespace == b.Namespace && a.Name == b.Name
}

// repository is an image's name without tag and digest.
func repository(name string) string {
	named, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return name
	}
	return named.Name()
}

// prune drops the records of images that are not on the node any more, by their IDs, unless they are newer than the
// look that has found so.
func (r *Records) prune(there func(id string) bool, looked time.Time) error {
	if r == nil {
		return nil
	}
	files, err := os.ReadDir(filepath.Join(r.dir, "pulled"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for records of images: %w", err)
	}
	r.turn <- struct{}{} // a moment: others write a file
	defer func() { <-r.turn }()
	var errs []error
	for _, f := range files {
		path := filepath.Join(r.dir, "pulled", f.Name())
		record, err := readRecord(path)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("read record of an image: %w", err))
		case there(record.ImageRef) || !record.LastUpdatedTime.Time.Before(looked.Truncate(time.Second)):
		default:
			errs = append(errs, os.Remove(path))
		}
	}
	return errors.Join(errs...)
}
