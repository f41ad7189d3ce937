package up

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/kemudi/kemudi/internal/join"
)

// Members are the servers of a cluster, as those who keep its store.
func Members(ctx context.Context, a Access) (states []join.ServerState, _ error) {
	return states, a.servers(ctx, http.MethodGet, join.ServersPath, &states)
}

// RemoveMember takes a server out of a cluster, by its name or by its member's ID. Which it was is
// returned.
func RemoveMember(ctx context.Context, a Access, name string) (state join.ServerState, _ error) {
	return state, a.servers(ctx, http.MethodDelete, join.ServersPath+"/"+url.PathEscape(name), &state)
}

// servers asks about the servers, and reads the answer.
func (a Access) servers(ctx context.Context, method, path string, into any) error {
	return a.ask(ctx, method, path, nil, into)
}

// rest asks for paths.
func (a Access) rest() (*rest.RESTClient, error) {
	api, _, err := a.client()
	if err != nil {
		return nil, err
	}
	c, ok := api.Discovery().RESTClient().(*rest.RESTClient)
	if !ok {
		return nil, fmt.Errorf("a client of type %T", api.Discovery().RESTClient())
	}
	return c, nil
}

// ask asks a server, and reads the answer.
func (a Access) ask(ctx context.Context, method, path string, query map[string]string, into any) error {
	c, err := a.rest()
	if err != nil {
		return err
	}
	req := c.Verb(method).AbsPath(path).SetHeader("Accept", "application/json")
	for name, value := range query {
		req.Param(name, value)
	}
	body, err := req.Do(ctx).Raw()
	if err != nil {
		var said metav1.Status // the client keeps no more than its code
		if json.Unmarshal(body, &said) == nil && said.Message != "" {
			err = errors.New(said.Message)
		}
		return err
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("read what the server says: %w", err)
	}
	return nil
}
