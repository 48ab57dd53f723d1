//go:build linux || darwin

package pgserver

// versions are the PostgreSQL versions of embedded servers, by their major version.
var versions = map[int]string{
	14: "14.18.0",
	15: "15.13.0",
	16: "16.9.0",
	17: "17.5.0",
	18: "18.3.0",
}

// sums are the SHA-256 sums of the archives of PostgreSQL's programs, by version and platform, as Maven Central names
// the platform. An archive without a sum here is not used.
var sums = map[string]map[string]string{
	"14.18.0": {
		"darwin-amd64":       "0e4764346ad227223e7ea0d679e508067e5809cf640a5146c1d3d701db90941c",
		"linux-amd64":        "d08a4c4703faf3f78ed74af72f1794d32ad3798f7dedf46abd383f809a99262b",
		"linux-amd64-alpine": "c714033647d894b90f146aa24aad13d54a4851f76cdc3903e33807024614d449",
	},
	"15.13.0": {
		"darwin-amd64":       "1befcdf1f4ef59aaac5efbff997de798984f7a03ab1fb6b32771fbfb21178dc5",
		"linux-amd64":        "cc0177d8a22b85ed266f6204c0642fd5c24ab583d1ef221d4b60bce29d4fa4ef",
		"linux-amd64-alpine": "73c825eba923c8faa8059a5f9af7d20c9800b7feba901110fdc3487400905a80",
	},
	"16.9.0": {
		"darwin-amd64":       "0be7111599308e8a670ae72e9512a4b902dabe3e2e0cda0539a0447a5bdacb26",
		"darwin-arm64v8":     "53b2672c602e16e4c94fb56b9aa68cc26a0bbb0df851f256f41a2cdbeccc9cb6",
		"linux-amd64":        "d983cee24678490199e1684d6a93f49f84673696cb6f0db64e880a4cf233017b",
		"linux-amd64-alpine": "2a82d0d9266d46976be463ecf76b89f72e614d867e26b7fe8cf038fe7e05f075",
		"linux-arm64v8":      "9d113402f70f4d134250916319ad83e87cba3796bd73a606c28dbabd326b4fa3",
	},
	"17.5.0": {
		"darwin-amd64":       "fb70f783928e77c3d6ef5ca8ed644f1ac502f740fcfc032a375c8347820f2bdd",
		"darwin-arm64v8":     "e9d3398e10c2ec926395498b03e75ad1a24eeaed82895e756a7e173b202cf6de",
		"linux-amd64":        "646f3269075d1a23904127374e3cdbcef96beb32979fedee25d835877400fcbe",
		"linux-amd64-alpine": "7122386c7f7a089568f05720ada63448093d4065abbc0a89e6dc660851a53e3c",
		"linux-arm64v8":      "e02f27ff50ff2d90b6541d54f3f108505aacd84ea53c2890e976a684bfea2752",
	},
	"18.3.0": {
		"darwin-amd64":       "cb68c57232945f5e74db946e6077d70cec56bfed35959b21acc750cc80ca0977",
		"darwin-arm64v8":     "a18ec9ec6a905e04f5a08a8f7870bddadd635feb54dee332a3daf80fada3cb1a",
		"linux-amd64":        "1974c3a59c3ae010e9818e81637e425aad94eaac26e4ef533b42e081fe7ca345",
		"linux-amd64-alpine": "510fd314da39f1eeccef774a92428474168fedf55403342548e2adeaed66b483",
		"linux-arm64v8":      "1fb555a6602c13a113ab1f0cc9224d599948e85e51ac5f001393605505eaf78e",
	},
}
