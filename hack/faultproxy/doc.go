// Package faultproxy stands between a client and a registry and spoils its answers: the one place for what registries
// do wrong, for every test that has a client.
//
//	request -> Proxy -> Fault, or the registry behind it -> answer
package faultproxy
