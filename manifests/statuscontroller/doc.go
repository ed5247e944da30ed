// Package statuscontroller says how dayone as a whole is, as OpenShift's operators do: in conditions of one object. In
// mode full it also keeps dayone out of the way of a Machine Config Operator that has come back.
//
//	Deployments, pools, ClusterVersion, conditions of others -> view -> judge -> ConfigMap, ClusterOperator
package statuscontroller
