// Package acme is an example of a vendor's cloud: machines that an API over HTTP tells of. Whatever else the interface of
// k8s.io/cloud-provider has, acme does not: the loops that need it do not run, and the log says so.
package acme

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	corev1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"
)

// Name is the provider's.
const Name = "acme"

// Cloud is acme's API.
type Cloud struct {
	// URL of the API; below it, machines/NAME is the machine that runs the node of that name.
	URL string `json:"url"`
	// Token goes with each request.
	Token string `json:"token"`
}

var (
	_ cloudprovider.Interface   = (*Cloud)(nil)
	_ cloudprovider.InstancesV2 = (*Cloud)(nil)
)

// Machine is what the API tells of one.
type Machine struct {
	ID      string `json:"id"`
	Kind    string `json:"kind"`
	Zone    string `json:"zone"`
	Region  string `json:"region"`
	Address string `json:"address"`
	Off     bool   `json:"off"`
}

// Open reads the file of --cloud-config, JSON; nil: the flag was not given.
func Open(config io.Reader) (cloudprovider.Interface, error) {
	if config == nil {
		return nil, errors.New("want a file with acme's url and token (--cloud-config)")
	}
	c := &Cloud{}
	if err := json.NewDecoder(config).Decode(c); err != nil {
		return nil, fmt.Errorf("read acme's configuration: %w", err)
	}
	if u, err := url.Parse(c.URL); err != nil || u.Host == "" {
		return nil, fmt.Errorf("acme's configuration: url %q is none", c.URL)
	}
	return c, nil
}

// machine asks for the machine of a node; nil: it is gone. The loops give each call a deadline.
func (c *Cloud) machine(ctx context.Context, node *corev1.Node) (*Machine, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL+"/machines/"+url.PathEscape(node.Name), nil)
	if err != nil {
		return nil, fmt.Errorf("ask acme for machine %s: %w", node.Name, err)
	}
	r.Header.Set("Authorization", "Bearer "+c.Token)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, fmt.Errorf("ask acme for machine %s: %w", node.Name, err)
	}
	defer answer.Body.Close()
	switch answer.StatusCode {
	case http.StatusNotFound:
		return nil, nil
	case http.StatusOK:
	default: // what is not known is an error: who says that a machine is gone has its node deleted
		return nil, fmt.Errorf("ask acme for machine %s: %s", node.Name, answer.Status)
	}
	m := &Machine{}
	if err := json.NewDecoder(answer.Body).Decode(m); err != nil {
		return nil, fmt.Errorf("ask acme for machine %s: %w", node.Name, err)
	}
	return m, nil
}

// InstanceExists says whether a node's machine is there.
func (c *Cloud) InstanceExists(ctx context.Context, node *corev1.Node) (bool, error) {
	m, err := c.machine(ctx, node)
	return m != nil, err
}

// InstanceShutdown says whether it is off.
func (c *Cloud) InstanceShutdown(ctx context.Context, node *corev1.Node) (bool, error) {
	m, err := c.machine(ctx, node)
	return m != nil && m.Off, err
}

// InstanceMetadata is what acme knows of a node's machine.
func (c *Cloud) InstanceMetadata(ctx context.Context, node *corev1.Node) (*cloudprovider.InstanceMetadata, error) {
	m, err := c.machine(ctx, node)
	if err != nil {
		return nil, err
	}
	if m == nil {
		return nil, cloudprovider.InstanceNotFound
	}
	return &cloudprovider.InstanceMetadata{
		ProviderID: Name + "://" + m.ID, InstanceType: m.Kind, Zone: m.Zone, Region: m.Region,
		NodeAddresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: m.Address}},
	}, nil
}

// Initialize is called before the loops run, with clients of the cluster's API: acme needs none.
func (c *Cloud) Initialize(cloudprovider.ControllerClientBuilder, <-chan struct{}) {}

// InstancesV2 is the machines.
func (c *Cloud) InstancesV2() (cloudprovider.InstancesV2, bool) { return c, true }

// ProviderName is how provider IDs begin.
func (c *Cloud) ProviderName() string { return Name }

// HasClusterID says that all machines of a token are one cluster's.
func (c *Cloud) HasClusterID() bool { return true }

// LoadBalancer: acme has none.
func (c *Cloud) LoadBalancer() (cloudprovider.LoadBalancer, bool) { return nil, false }

// Routes: acme has none.
func (c *Cloud) Routes() (cloudprovider.Routes, bool) { return nil, false }

// Instances are told by InstancesV2.
func (c *Cloud) Instances() (cloudprovider.Instances, bool) { return nil, false }

// Zones are told by InstancesV2.
func (c *Cloud) Zones() (cloudprovider.Zones, bool) { return nil, false }

// Clusters are of no interest.
func (c *Cloud) Clusters() (cloudprovider.Clusters, bool) { return nil, false }
