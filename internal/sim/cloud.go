package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"sigs.k8s.io/yaml"
)

// cloudFile is the path of a loopback cloud; empty: there is none.
type cloudFile string

// newCloud writes a cloud that begins as data says, if there is any.
func newCloud(t *testing.T, data []byte) (cloudFile, error) {
	if data == nil {
		return "", nil
	}
	file := filepath.Join(t.TempDir(), "cloud.yaml")
	return cloudFile(file), os.WriteFile(file, data, 0o600)
}

var errNoCloud = errors.New("there is no cloud: the script wants a line # Cloud: FILE")

// setCloud replaces some of what the cloud's file says.
func setCloud(_ context.Context, r *run, args []string) error {
	if len(args) != 1 || r.files[args[0]] == nil {
		return errArgs
	}
	if r.cloud == "" {
		return errNoCloud
	}
	data, err := os.ReadFile(string(r.cloud))
	if err != nil {
		return fmt.Errorf("read the cloud: %w", err)
	}
	var now, change map[string]json.RawMessage
	if err := errors.Join(yaml.Unmarshal(data, &now), yaml.Unmarshal(r.files[args[0]], &change)); err != nil {
		return fmt.Errorf("decode the cloud: %w", err)
	}
	maps.Copy(now, change)
	if data, err = yaml.Marshal(now); err != nil {
		return fmt.Errorf("encode the cloud: %w", err)
	}
	return os.WriteFile(string(r.cloud), data, 0o600)
}

// showCloud prints the cloud's file.
func showCloud(_ context.Context, r *run, _ []string) error {
	if r.cloud == "" {
		return errNoCloud
	}
	data, err := os.ReadFile(string(r.cloud))
	if err != nil {
		return fmt.Errorf("read the cloud: %w", err)
	}
	r.stdout = string(data)
	return nil
}
