package nodeconf

import (
	"slices"

	configv1 "github.com/openshift/api/config/v1"

	"dayone.dev/dayone/installconfig/report"
	"dayone.dev/dayone/manifests"
	"dayone.dev/dayone/manifests/tlsprofile"
)

// inheritedDropIn comes before a KubeletConfig's drop-in, whose fields count more.
const inheritedDropIn = "/etc/kubernetes/kubelet.conf.d/98-apiserver-tls.conf"

// InheritedTLS returns the drop-in with which every kubelet has the TLS profile that the APIServer cluster names; none
// when it names none.
func InheritedTLS(item manifests.Item[*configv1.APIServer]) ([]File, []report.Finding, error) {
	profile := item.Object.Spec.TLSSecurityProfile
	if profile == nil {
		return nil, nil, nil
	}
	fields, found := tlsSettings(profile, func(path, rule, next string) report.Finding {
		place := item.Origin.At(path, rule)
		place.Next = next
		return place
	})
	if len(fields) == 0 {
		return nil, found, nil
	}
	file, err := dropIn(inheritedDropIn, fields)
	return []File{file}, found, err
}

// profilePath is where a KubeletConfig, as an APIServer, has its profile.
const profilePath = "spec.tlsSecurityProfile"

// tlsSettings are the kubelet's fields for a profile. Ciphers of the built-in profiles that no Go program has are left
// out, as by MCO; of a profile of one's own they are named.
func tlsSettings(profile *configv1.TLSSecurityProfile, at placer) (map[string]any, []report.Finding) {
	var bad report.Report
	spec, err := tlsprofile.Spec(profile)
	if err != nil {
		bad.Errorf(at(profilePath, "tls-profile", "see the API's documentation of tlsSecurityProfile"), "%s", err)
		return map[string]any{}, bad.Findings
	}
	suites, unknown := tlsprofile.Suites(spec.Ciphers)
	if profile.Type == configv1.TLSProfileCustomType {
		checkCustom(spec, at, &bad)
		if len(unknown) > 0 && len(suites) > 0 {
			bad.Warnf(at(profilePath+".custom.ciphers", "tls-cipher", "use OpenSSL's names of ciphers that Go has"),
				"the kubelet does not have the ciphers %q: they are left out", unknown)
		}
	}
	names := make([]any, 0, len(suites))
	for _, s := range suites {
		names = append(names, s.Name)
	}
	if len(names) == 0 {
		bad.Errorf(at(profilePath+".custom.ciphers", "tls-cipher", "name ciphers that Go has, by OpenSSL's names"),
			"the profile leaves the kubelet no cipher")
	}
	return map[string]any{"tlsMinVersion": string(spec.MinTLSVersion), "tlsCipherSuites": names}, bad.Findings
}

// checkCustom looks at what only a profile of one's own can get wrong.
func checkCustom(spec *configv1.TLSProfileSpec, at placer, bad *report.Report) {
	if !slices.Contains(tlsprofile.Versions(), spec.MinTLSVersion) {
		bad.Errorf(at(profilePath+".custom.minTLSVersion", "tls-version",
			"use VersionTLS10, VersionTLS11, VersionTLS12 or VersionTLS13"),
			"minTLSVersion %q is not known", spec.MinTLSVersion)
	}
	if len(spec.Groups) > 0 {
		bad.Warnf(at(profilePath+".custom.groups", "tls-groups", "remove groups, or accept the kubelet's own choice"),
			"the kubelet has no setting for groups: they have no effect on it")
	}
}
