// Package authn finds out who makes a request: [Authenticator] asks a front
// proxy's headers, the client's certificate and its bearer token, in this
// order, and believes the first that is good. Who shows nothing is
// system:anonymous, who shows only what is bad is refused.
//
// Certificates of nodes are good only while the cluster knows their key: [NodeAccess].
//
// [Issuer] makes the tokens of service accounts and the documents by which
// others can check them.
package authn
