package e2e

import (
	"context"
	"encoding/xml"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/kemudi/kemudi/internal/ociimage"
	"github.com/kemudi/kemudi/test/image"
)

// policySuite names the folder with the programs that make network-policies builds. What the suite says is put there,
// too: report.xml and log. policyTags has cases with one of these tags of the suite alone run.
const policySuite, policyTags = "KEMUDI_POLICY_SUITE", "KEMUDI_POLICY_TAGS"

// policyReport is what of the suite's report counts.
type policyReport struct {
	Cases []struct {
		Name    string    `xml:"name,attr"`
		Failure *struct{} `xml:"failure"`
	} `xml:"testcase"`
}

// TestPoliciesPassTheCasesOfCyclonus has a program that others wrote try all connections between nine pods on two nodes, by
// their Services, under each of its policies. That a pod may reach itself, as the documentation has it, it does not
// know, and is told to leave out; SCTP needs sockets that not each kernel has.
func TestPoliciesPassTheCasesOfCyclonus(t *testing.T) {
	dir := os.Getenv(policySuite)
	if dir == "" {
		t.Skip(policySuite + ": not told; make network-policies builds the suite, and runs it for half an hour")
	}
	s := newServers(t, 1, 1)
	paths, err := image.Write(filepath.Join(s.Dir, "images"), []ociimage.Image{{
		Names: []string{"kemudi.local/e2e-test-images/agnhost:2.43"}, Entrypoint: []string{"/agnhost"},
		Files: []ociimage.File{{Path: "/agnhost", Source: filepath.Join(dir, "agnhost"), Mode: 0o755}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	s.up(t, "--import", paths[0])
	report := filepath.Join(dir, "report.xml")
	log := must(os.Create(filepath.Join(dir, "log")))(t)
	defer log.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Hour)
	defer cancel()
	suite := s.command(ctx, filepath.Join(dir, "cyclonus"), "generate", "--ignore-loopback", "--image-registry=kemudi.local", "--server-protocol=TCP,UDP",
		"--perturbation-wait-seconds=1", "--job-timeout-seconds=1", "--exclude=multi-peer", "--include="+os.Getenv(policyTags), "--cleanup-namespaces", "--junit-results-file="+report)
	suite.Stdout, suite.Stderr = log, log
	if err := s.start(suite); err != nil {
		t.Fatal(err)
	}
	if err := suite.Wait(); err != nil {
		t.Errorf("the suite: %v; see %s", err, log.Name())
	}
	var said policyReport
	if err := xml.Unmarshal(must(os.ReadFile(report))(t), &said); err != nil {
		t.Fatal(err)
	}
	for _, c := range said.Cases {
		if c.Failure != nil {
			t.Errorf("%s: other connections than there should be; see %s", c.Name, log.Name())
		}
	}
	if len(said.Cases) == 0 {
		t.Error("no case was tried")
	}
	t.Logf("%d cases", len(said.Cases))
}
