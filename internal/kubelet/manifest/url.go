package manifest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/kemudi/kemudi/internal/wholefile"
)

// Every is how often a URL is asked, as upstream does.
const Every = 20 * time.Second

// fetchTimeout bounds one question.
const fetchTimeout = 10 * time.Second

// URL is where somebody publishes manifests of pods: one Pod or a PodList, in JSON or YAML. Not for concurrent use.
type URL struct {
	Address string
	Header  Header // of each question
	Node    string
	// Kept is the file in which the last answer is kept, so that an agent that starts anew knows its pods while
	// nobody answers.
	Kept string
	// Client asks. Nil: the usual one, with a deadline.
	Client *http.Client

	last []byte
	pods []*v1.Pod
}

// Restore takes up the last answer of an earlier life.
func (u *URL) Restore() error {
	data, err := os.ReadFile(u.Kept)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = u.take(data)
	}
	if err != nil {
		return fmt.Errorf("read what %s said before: %w", u.Address, err)
	}
	return nil
}

// Load returns the pods of the last answer that could be read.
func (u *URL) Load() []*v1.Pod { return u.pods }

// Fetch asks, and reports whether the answer is another one than the last. After an error the last one goes on.
func (u *URL) Fetch(ctx context.Context) (changed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	data, err := u.ask(ctx)
	if err != nil {
		return false, fmt.Errorf("ask %s for manifests: %w", u.Address, err)
	}
	if bytes.Equal(data, u.last) {
		return false, nil
	}
	if err := u.take(data); err != nil {
		return false, fmt.Errorf("manifests of %s: %w", u.Address, err)
	}
	if u.Kept == "" {
		return true, nil
	}
	if err := wholefile.Private(u.Kept, data); err != nil {
		return true, fmt.Errorf("keep manifests of %s: %w", u.Address, err)
	}
	return true, nil
}

// ask returns what is answered.
func (u *URL) ask(ctx context.Context) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.Address, nil)
	if err != nil {
		return nil, err
	}
	for name, values := range u.Header {
		req.Header[http.CanonicalHeaderKey(name)] = values
	}
	client := u.Client
	if client == nil {
		client = http.DefaultClient
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxSize+1))
	switch {
	case err != nil:
		return nil, err
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("%s", resp.Status)
	case len(data) == 0:
		return nil, errors.New("zero-length data received")
	case len(data) > maxSize:
		return nil, fmt.Errorf("more than %d bytes", maxSize)
	}
	return data, nil
}

// take makes the pods of an answer those that there are.
func (u *URL) take(data []byte) error {
	var what struct {
		Kind string `json:"kind"`
	}
	if err := yaml.Unmarshal(data, &what); err != nil {
		return err
	}
	var list []v1.Pod
	if what.Kind == "PodList" || what.Kind == "List" {
		var all struct {
			APIVersion string            `json:"apiVersion"`
			Kind       string            `json:"kind"`
			Metadata   json.RawMessage   `json:"metadata,omitempty"`
			Items      []json.RawMessage `json:"items"`
		}
		if err := yaml.UnmarshalStrict(data, &all); err != nil {
			return err
		}
		list = make([]v1.Pod, len(all.Items))
		for i, item := range all.Items {
			if err := yaml.UnmarshalStrict(item, &list[i]); err != nil {
				return fmt.Errorf("items[%d]: %w", i, err)
			}
			if list[i].Kind == "" && list[i].APIVersion == "" { // as those of lists are
				list[i].Kind, list[i].APIVersion = "Pod", "v1"
			}
		}
	} else {
		list = make([]v1.Pod, 1)
		if err := yaml.UnmarshalStrict(data, &list[0]); err != nil {
			return err
		}
	}
	from := origin{node: u.Node, source: "http", place: "url:" + u.Address}
	pods, taken := make([]*v1.Pod, 0, len(list)), map[string]bool{}
	for i := range list {
		pod, err := from.pod(&list[i])
		if err != nil {
			return err
		}
		key := pod.Namespace + "/" + pod.Name
		if taken[key] {
			return fmt.Errorf("pod %s is there twice", key)
		}
		taken[key] = true
		for _, old := range u.pods {
			if old.UID == pod.UID {
				pod = old
			}
		}
		pods = append(pods, pod)
	}
	u.last, u.pods = data, pods
	return nil
}

// Header are headers that a flag can set: name:value,name:value,..., said once or several times.
type Header map[string][]string

// Type names the kind of flag.
func (h *Header) Type() string { return "name:value,..." }

// Set adds what a text says.
func (h *Header) Set(text string) error {
	if *h == nil {
		*h = Header{}
	}
	for part := range strings.SplitSeq(text, ",") {
		name, value, ok := strings.Cut(part, ":")
		if name = strings.TrimSpace(name); !ok || name == "" {
			return fmt.Errorf("malformed pair, expect string:string: %q", part)
		}
		(*h)[name] = append((*h)[name], strings.TrimSpace(value))
	}
	return nil
}

// String is what Set reads.
func (h *Header) String() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(*h)) {
		for _, value := range (*h)[name] {
			parts = append(parts, name+":"+value)
		}
	}
	return strings.Join(parts, ",")
}
