package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/kemudi/kemudi/internal/ociimage"
	"github.com/kemudi/kemudi/test/image"
)

// gatewayConformance names the folder with the programs of test/gatewayconformance, which make gateway-conformance
// builds. What the suite says is put there, too: report.yaml and log. gatewayTests has a test of the suite alone run.
const gatewayConformance, gatewayTests = "KEMUDI_GATEWAY_CONFORMANCE", "KEMUDI_GATEWAY_TEST"

// gatewayProfiles are those of the suite's profiles that are claimed.
const gatewayProfiles = "GATEWAY-HTTP,GATEWAY-GRPC,GATEWAY-TLS,GATEWAY-TCP,GATEWAY-UDP"

// gatewayReport is what of the suite's report counts.
type gatewayReport struct {
	GatewayAPIVersion string `json:"gatewayAPIVersion"`
	Profiles          []struct {
		Name     string        `json:"name"`
		Core     gatewayStatus `json:"core"`
		Extended gatewayStatus `json:"extended"`
	} `json:"profiles"`
}

type gatewayStatus struct {
	Result      string                                `json:"result"`
	Statistics  struct{ Passed, Skipped, Failed int } `json:"statistics"`
	FailedTests []string                              `json:"failedTests"`
}

func (s gatewayStatus) String() string {
	return fmt.Sprintf("%s, %d passed, %d skipped, %d failed %s", s.Result, s.Statistics.Passed, s.Statistics.Skipped, s.Statistics.Failed, strings.Join(s.FailedTests, " "))
}

// TestGatewaysPassTheSuiteOfTheGatewayAPI has the conformance suite of the Gateway API say whether Gateways of a
// cluster with one node do what they are to, with all features that the class claims. It runs on another machine.
func TestGatewaysPassTheSuiteOfTheGatewayAPI(t *testing.T) {
	dir := os.Getenv(gatewayConformance)
	if dir == "" {
		t.Skip(gatewayConformance + ": not told; make gateway-conformance builds the suite, which takes minutes")
	}
	c := newCluster(t, "--gateway-api", "--load-balancer=192.168.77.128/25")
	paths, err := image.Write(filepath.Join(c.Dir, "images"), gatewayImages(dir))
	if err != nil {
		t.Fatal(err)
	}
	c.importImages(t, paths...)
	kubeconfig := filepath.Join(c.Dir, "outside.kubeconfig")
	text := regexp.MustCompile(`server: https://[^:]*:`).ReplaceAllString(string(must(os.ReadFile(c.adminKubeconfig()))(t)), "server: https://"+machineIP+":")
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c.kubectl().do(t, "wait", "gatewayclass/kemudi", "--for=create", patient)
	c.kubectl().do(t, "wait", "gatewayclass/kemudi", "--for=condition=Accepted", patient)
	report := filepath.Join(dir, "report.yaml")
	log := must(os.Create(filepath.Join(dir, "log")))(t)
	defer log.Close()
	args := []string{
		"-test.v", "-test.timeout=60m", "-gateway-class=kemudi", "-conformance-profiles=" + gatewayProfiles, "-usable-address=192.168.77.250", "-unusable-address=192.168.77.3",
		"-report-output=" + report, "-organization=kemudi", "-project=kemudi", "-url=https://github.com/kemudi/kemudi", "-version=" + strings.Fields(c.run(t.Context(), nil, c.bin, "version").stdout)[1], "-contact=github.com/kemudi",
		"-allow-crds-mismatch", // the definitions are of a later version than the suite
	}
	if one := os.Getenv(gatewayTests); one != "" {
		args = append(args, "-run-test="+one, "-all-features", "-exempt-features=Mesh") // which needs workloads that are no part of this
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	suite := exec.CommandContext(ctx, filepath.Join(dir, "suite"), args...)
	suite.Dir, suite.Stdout, suite.Stderr = c.Dir, log, log
	suite.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	if err := c.neighbour.Do(suite.Start); err != nil {
		t.Fatal(err)
	}
	if err := suite.Wait(); err != nil {
		t.Errorf("the suite: %v; see %s", err, log.Name())
	}
	var said gatewayReport
	if err := yaml.Unmarshal(must(os.ReadFile(report))(t), &said); err != nil {
		t.Fatal(err)
	}
	for _, p := range said.Profiles {
		t.Logf("%s of %s: core: %s; extended: %s", p.Name, said.GatewayAPIVersion, p.Core, p.Extended)
	}
}

// gatewayImages are the images that the suite's manifests name.
func gatewayImages(dir string) []ociimage.Image {
	echo := ociimage.Image{Files: []ociimage.File{{Path: "/echo-basic", Source: filepath.Join(dir, "echo-basic"), Mode: 0o755}}, Entrypoint: []string{"/echo-basic"}, User: "65532:65532"}
	for _, tag := range []string{"v1.5.1", "v1.6.0-dev.2", "v1.6.0-dev.3"} {
		echo.Names = append(echo.Names, "registry.k8s.io/gateway-api/echo-basic:"+tag)
	}
	return []ociimage.Image{echo, {
		Names: []string{"registry.k8s.io/coredns/coredns:v1.12.2"}, Entrypoint: []string{"/coredns"},
		Files: []ociimage.File{{Path: "/coredns", Source: filepath.Join(dir, "coredns"), Mode: 0o755}},
	}}
}
