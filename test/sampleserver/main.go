package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/sample-apiserver/pkg/cmd/server"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "sampleserver:", err)
		os.Exit(1)
	}
}

// patience is how long etcd may take to be ready.
const patience = time.Minute

// Environment variables that say where the etcd is: a directory, and the addresses of its two ports.
const (
	dirEnv    = "SAMPLESERVER_DIR"
	clientEnv = "SAMPLESERVER_ETCD"
	peerEnv   = "SAMPLESERVER_PEERS"
)

func run() error {
	ctx := genericapiserver.SetupSignalContext()
	client, stop, err := startEtcd(ctx)
	if err != nil {
		return fmt.Errorf("start etcd: %w", err)
	}
	defer stop()
	cmd := server.NewCommandStartWardleServer(ctx, server.NewWardleServerOptions(os.Stdout, os.Stderr), false)
	cmd.SetArgs(append([]string{"--etcd-servers=" + client}, os.Args[1:]...))
	return cmd.Execute()
}

// startEtcd starts an etcd, and returns its address.
func startEtcd(ctx context.Context) (client string, stop func(), err error) {
	at, err := url.Parse(os.Getenv(clientEnv))
	if err != nil || at.Host == "" {
		return "", nil, errors.New(clientEnv + ": want a URL")
	}
	peers, err := url.Parse(os.Getenv(peerEnv))
	if err != nil || peers.Host == "" {
		return "", nil, errors.New(peerEnv + ": want a URL")
	}
	c := embed.NewConfig()
	c.Dir, c.LogLevel, c.UnsafeNoFsync = os.Getenv(dirEnv), "error", true
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{*at}, []url.URL{*at}
	c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{*peers}, []url.URL{*peers}
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	e, err := embed.StartEtcd(c)
	if err != nil {
		return "", nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case <-e.Server.ReadyNotify():
		return at.String(), e.Close, nil
	case err = <-e.Err():
	case <-ctx.Done():
		err = ctx.Err()
	}
	e.Close()
	return "", nil, err
}
