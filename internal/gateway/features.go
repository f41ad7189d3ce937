package gateway

import (
	"slices"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// features are what the conformance tests of the Gateway API call what is done here, beside the core of each kind.
var features = []string{
	"Gateway", "GatewayAddressEmpty", "GatewayBackendClientCertificate", "GatewayFrontendClientCertificateValidation",
	"GatewayFrontendClientCertificateValidationInsecureFallback", "GatewayHTTPListenerIsolation", "GatewayHTTPSListenerDetectMisdirectedRequests",
	"GatewayInfrastructure", "GatewayPort8080", "GatewayStaticAddresses", "ListenerSet",
	"ReferenceGrant",
	"HTTPRoute", "HTTPRoute303RedirectStatusCode", "HTTPRoute307RedirectStatusCode", "HTTPRoute308RedirectStatusCode",
	"HTTPRouteBackendProtocolH2C", "HTTPRouteBackendProtocolWebSocket", "HTTPRouteBackendRequestHeaderModification", "HTTPRouteBackendTimeout", "HTTPRouteCORS",
	"HTTPRouteDestinationPortMatching", "HTTPRouteHostRewrite", "HTTPRouteMethodMatching", "HTTPRouteNamedRouteRule", "HTTPRouteParentRefPort",
	"HTTPRoutePathRedirect", "HTTPRoutePathRewrite", "HTTPRoutePortRedirect", "HTTPRouteQueryParamMatching", "HTTPRouteRequestMirror",
	"HTTPRouteRequestMultipleMirrors", "HTTPRouteRequestPercentageMirror", "HTTPRouteRequestTimeout", "HTTPRouteResponseHeaderModification", "HTTPRouteSchemeRedirect",
	"GRPCRoute", "GRPCRouteNamedRouteRule",
	"TLSRoute", "TLSRouteModeMixed", "TLSRouteModeTerminate",
	"TCPRoute", "UDPRoute",
	"BackendTLSPolicy", "BackendTLSPolicySANValidation",
}

// Features are those, as statuses of classes have them.
func Features() (list []gatewayv1.SupportedFeature) {
	for _, name := range slices.Sorted(slices.Values(features)) {
		list = append(list, gatewayv1.SupportedFeature{Name: gatewayv1.FeatureName(name)})
	}
	return list
}

// Bundle is the version of the Gateway API whose definitions are here.
const Bundle = "v1.7.0"
