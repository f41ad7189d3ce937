package e2e

import "testing"

// TestCluster shares one cluster between all tests that leave it as it was.
func TestCluster(t *testing.T) {
	c := newCluster(t, "--load-balancer", "nodes,lan="+balancerPool, "--enable-system-log-query")
	t.Run("together", func(t *testing.T) {
		for name, test := range map[string]func(*testing.T, *cluster){
			"deployment of the documents": testDocumentDeployment,
			"rollout under load":          testRolloutUnderLoad,
			"daemon set":                  testDaemonSet,
			"jobs":                        testJobs,
			"job that leads":              testJobThatLeads,
			"local restarts":              testLocalRestarts,
			"set with claims":             testSetWithClaims,
			"cron job":                    testCronJob,
			"reading":                     everyKubectl(testReading),
			"changing":                    everyKubectl(testChanging),
			"watching":                    everyKubectl(testWatching),
			"talking":                     everyKubectl(testTalking),
			"logs":                        everyKubectl(testLogs),
			"slow readers":                everyKubectl(testSlowReaders),
			"forwarding":                  testForwarding,
			"debugging":                   everyKubectl(testDebugging),
			"node logs":                   testNodeLogs,
			"commands":                    testCommands,
			"environment":                 testEnvironment,
			"missing sources":             testMissingSources,
			"security":                    testSecurity,
			"sharing":                     testSharing,
			"web hooks":                   testWebHooks,
			"volumes":                     testVolumes,
			"shared volume":               testSharedVolume,
			"volumes within volumes":      testVolumesWithinVolumes,
			"volume updates":              testVolumeUpdates,
			"volume facts":                testVolumeFacts,
			"volume owners":               testVolumeOwners,
			"persistent volumes":          testPersistentVolumes,
			"followed volumes":            testFollowedVolumes,
			"many config maps":            testManyConfigMaps,
			"missing volumes":             testMissingVolumes,
			"volume of a driver":          testDriver,
			"pod certificates":            testPodCertificates,
			"expanded path":               testExpandedPath,
			"web sockets":                 testWebSockets,
			"restarts":                    testRestarts,
			"init containers":             testInitContainers,
			"endings":                     testEndings,
			"deletion":                    testDeletion,
			"liveness":                    testLiveness,
			"readiness":                   testReadiness,
			"readiness gate":              testReadinessGate,
			"names":                       testNames,
			"resolver settings":           testResolverSettings,
			"service account":             testServiceAccount,
			"pod network":                 testPodNetwork,
			"network policies":            testNetworkPolicies,
			"API service":                 testAPIService,
			"issuer":                      testIssuer,
			"proxy":                       testProxy,
			"guestbook":                   testGuestbook,
			"host ports":                  testHostPorts,
			"affinity":                    testAffinity,
			"autoscaling":                 testAutoscaling,
			"service types":               testServiceTypes,
			"secure service":              testSecureService,
			"ephemeral container":         testEphemeralContainer,
			"balancers":                   testBalancers,
			"relays":                      testRelays,
			"same in every namespace":     testSameInEveryNamespace,
			"unschedulable":               testUnschedulable,
			"extended resources":          testExtendedResources,
			"bad manifests":               testBadManifests,
			"bad requests":                testBadRequests,
			"bad pods":                    testBadPods,
			"stuck rollout":               testStuckRollout,
			"registry":                    testRegistry,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t, c)
			})
		}
	})
	t.Run("files", func(t *testing.T) { c.wantExplained(t) }) // as many as there may be, after all of these
}
