package join

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	apimachinery "k8s.io/apimachinery/pkg/version"

	"github.com/kemudi/kemudi/internal/version"
)

// olderBy is how many minor versions older than the servers a machine may be, as upstream has it
// for node agents. None is newer than they are.
const olderBy = 3

// fits refuses to have a machine in a cluster whose servers are of a version that does not go with its own.
// What says no version is taken as it is.
func (i *Identity) fits(ctx context.Context, c Cluster) error {
	theirs, err := serversVersion(ctx, c)
	if err != nil {
		i.o.Log.Warn("the servers do not say of which version they are", "err", err)
		return nil
	}
	servers, err := version.Minor(theirs)
	if err != nil {
		i.o.Log.Warn("the servers do not say of which version they are", "err", err)
		return nil
	}
	own, err := version.Minor(i.o.Version)
	switch {
	case err != nil:
		return err
	case own > servers:
		return refuse("this machine has %s, and the servers of the cluster %s: agents must not be newer than servers. Bring the servers to this version first, or start the agent with the program that they have; nothing was changed, and containers run on", i.o.Version, theirs)
	case own < servers-olderBy:
		return refuse("this machine has %s, and the servers of the cluster %s: agents may be %d minor versions older. Start the agent with the program that the servers have; nothing was changed, and containers run on", i.o.Version, theirs, olderBy)
	}
	return nil
}

// serversVersion is the version of the first server that says it. No credentials are shown.
func serversVersion(ctx context.Context, c Cluster) (string, error) {
	certs, err := parseCertificates(c.CA)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, discoverTimeout, errors.New("no server answered in time"))
	defer cancel()
	config := &tls.Config{RootCAs: pool(certs), MinVersion: tls.VersionTLS12}
	var errs []error
	for _, base := range c.Servers {
		said, err := versionOf(ctx, base, config)
		if err == nil {
			return said, nil
		}
		errs = append(errs, err)
	}
	return "", errors.Join(errs...)
}

func versionOf(ctx context.Context, base string, config *tls.Config) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/version", http.NoBody)
	if err != nil {
		return "", fmt.Errorf("ask %s for its version: %w", base, err)
	}
	res, text, err := exchange(req, config)
	if err != nil {
		return "", fmt.Errorf("ask %s for its version: %w", base, err)
	}
	if res.StatusCode != http.StatusOK {
		return "", fmt.Errorf("ask %s for its version: it answered %s", base, res.Status)
	}
	var said apimachinery.Info
	if err := json.Unmarshal(text, &said); err != nil {
		return "", fmt.Errorf("read the version of %s: %w", base, err)
	}
	return said.GitVersion, nil
}
