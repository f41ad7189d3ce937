package up

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/kemudi/kemudi/internal/wholefile"
)

// contextName is the context, cluster and user in a person's kubeconfig.
const contextName = "kemudi"

// DefaultKubeconfig is the file that kubectl would read.
func DefaultKubeconfig() string { return clientcmd.NewDefaultPathOptions().GetDefaultFilename() }

// mergeKubeconfig puts the access in the file from into the file to, under the
// name kemudi, and makes it the current one. Everything else in the file stays.
func mergeKubeconfig(from, to string) error {
	admin, err := clientcmd.LoadFromFile(from)
	if err != nil {
		return fmt.Errorf("read %s: %w", from, err)
	}
	ctx := admin.Contexts[admin.CurrentContext]
	if ctx == nil {
		return fmt.Errorf("%s has no current context", from)
	}
	config, err := clientcmd.LoadFromFile(to) // as it is: relative paths stay relative
	if errors.Is(err, os.ErrNotExist) {
		config, err = api.NewConfig(), nil
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", to, err)
	}
	config.Clusters[contextName] = admin.Clusters[ctx.Cluster]
	config.AuthInfos[contextName] = admin.AuthInfos[ctx.AuthInfo]
	config.Contexts[contextName] = &api.Context{Cluster: contextName, AuthInfo: contextName}
	config.CurrentContext = contextName
	return writeKubeconfig(config, to)
}

// writeKubeconfig replaces the file at once: other clusters' access is in it, so
// that half a file must never be seen. Links, owner and mode stay as they are.
func writeKubeconfig(config *api.Config, file string) error {
	data, err := clientcmd.Write(*config)
	if err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	if target, err := filepath.EvalSymlinks(file); err == nil {
		file = target
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	return wholefile.Replace(file, data, 0o600)
}

// forgetKubeconfig removes what mergeKubeconfig added. It says whether there
// was something to remove.
func forgetKubeconfig(file string) (bool, error) {
	config, err := clientcmd.LoadFromFile(file)
	if err != nil || config.Contexts[contextName] == nil {
		return false, nil // no such file, or not ours
	}
	delete(config.Clusters, contextName)
	delete(config.AuthInfos, contextName)
	delete(config.Contexts, contextName)
	if config.CurrentContext == contextName {
		config.CurrentContext = ""
	}
	return true, writeKubeconfig(config, file)
}

// adminConfig is the administrator's access to the server.
func adminConfig(dataDir string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", AdminKubeconfig(dataDir))
	if err != nil {
		return nil, fmt.Errorf("read administrator's kubeconfig: %w", err)
	}
	return config, nil
}
