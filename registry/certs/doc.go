// Package certs makes and checks the certificates of the cluster's bootstrap services: one CA, server certificates with
// every name and address.
//
//	directory or nothing -> CA -> ServerCertificate(hosts) -> tls.Certificate, PEM files (keys 0600)
package certs
