// What CoreDNS names of quic-go, without the protocol: see
// docs/decisions/014-stand-ins.md.
module github.com/quic-go/quic-go

go 1.26.6
