/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/daemon/domain_xml.h"

#include <errno.h>
#include <libxml/parser.h>
#include <libxml/tree.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "shared/error.h"
#include "shared/parse_number.h"

/* Nothing is fetched, entities are not expanded, and nothing is printed. */
#define PARSE_OPTIONS                                                                              \
	(XML_PARSE_NONET | XML_PARSE_NOERROR | XML_PARSE_NOWARNING | XML_PARSE_NOCDATA)

static bool is_element(const xmlNode *node, const char *name)
{
	return node->type == XML_ELEMENT_NODE && !strcmp((const char *)node->name, name);
}

/* The first child of that name; NULL. */
static xmlNode *child(const xmlNode *parent, const char *name)
{
	for (xmlNode *node = parent ? parent->children : NULL; node; node = node->next)
		if (is_element(node, name))
			return node;
	return NULL;
}

/* Copies TEXT (consumed) to SIZE bytes at TO; false: there is none, or it does not fit. */
static bool copy_text(xmlChar *text, char *to, size_t size)
{
	size_t length = text ? strlen((const char *)text) : size;

	if (length < size)
		memcpy(to, text, length + 1);
	xmlFree(text);
	return length < size;
}

static bool attribute(const xmlNode *node, const char *name, char *to, size_t size)
{
	return copy_text(xmlGetNoNsProp(node, (const xmlChar *)name), to, size);
}

static int read_name(struct domain_xml *domain, const xmlNode *node)
{
	const xmlNode *name = child(node, "name");

	if (!name || !copy_text(xmlNodeGetContent(name), domain->name, sizeof(domain->name)) ||
	    !*domain->name)
		return error_set(-EINVAL,
				 "the domain's XML has no name, or one of more than %d bytes",
				 DOMAIN_NAME_SIZE - 1);
	return 0;
}

static int read_setting(struct domain_xml *domain, const xmlAttr *attribute_node)
{
	const char *key = (const char *)attribute_node->name;
	size_t at = domain->setting_count;
	xmlChar *value;

	if (at == DOMAIN_SETTINGS_MAX || strlen(key) >= DOMAIN_SETTING_SIZE)
		return error_set(
			-EINVAL,
			"the profile in the metadata of a domain has more attributes than there "
			"are settings");
	value = xmlNodeListGetString(attribute_node->doc, attribute_node->children, 1);
	if (value && !copy_text(value, domain->settings[at].value, DOMAIN_SETTING_SIZE))
		return error_set(
			-EINVAL,
			"the profile in the metadata of a domain has an attribute of more than %d "
			"bytes",
			DOMAIN_SETTING_SIZE - 1);
	memcpy(domain->settings[at].key, key, strlen(key) + 1);
	domain->setting_count++;
	return 0;
}

static int read_profile(struct domain_xml *domain, const xmlNode *profile)
{
	int error = 0;

	domain->profile = true;
	for (const xmlAttr *each = profile->properties; each && !error; each = each->next)
		error = read_setting(domain, each);
	return error;
}

/* libvirt allows one element per namespace. An invalid profile does not make the domain unknown. */
static void read_metadata(struct domain_xml *domain, const xmlNode *node)
{
	const xmlNode *metadata = child(node, "metadata");

	for (const xmlNode *each = metadata ? metadata->children : NULL; each; each = each->next)
		if (is_element(each, "profile") && each->ns &&
		    !strcmp((const char *)each->ns->href, DOMAIN_XML_NAMESPACE)) {
			if (read_profile(domain, each))
				snprintf(domain->wrong, sizeof(domain->wrong), "%s",
					 error_message());
			return;
		}
}

static void read_channels(struct domain_xml *domain, const xmlNode *node)
{
	const xmlNode *devices = child(node, "devices");
	char name[sizeof(DOMAIN_AGENT_CHANNEL)];

	for (const xmlNode *each = devices ? devices->children : NULL; each; each = each->next) {
		const xmlNode *target = is_element(each, "channel") ? child(each, "target") : NULL;

		domain->agent |= target && attribute(target, "name", name, sizeof(name)) &&
				 !strcmp(name, DOMAIN_AGENT_CHANNEL);
	}
}

/* libvirt: src/hypervisor/domain_job.c, virDomainAsyncJob */
static void read_migration(struct domain_xml *domain, const xmlNode *status)
{
	const xmlNode *job = child(status, "job");
	char async[32];

	if (!job || !attribute(job, "async", async, sizeof(async)))
		return;
	if (!strcmp(async, "migration out"))
		domain->migration = DOMAIN_LEAVES;
	else if (!strcmp(async, "migration in"))
		domain->migration = DOMAIN_ARRIVES;
}

static int read_state(struct domain_xml *domain, const xmlNode *status)
{
	char state[32], pid[16];
	const char *end;
	uint64_t number = 0;

	if (!attribute(status, "state", state, sizeof(state)) ||
	    !attribute(status, "pid", pid, sizeof(pid)))
		return error_set(-EINVAL, "the status of a domain has no state or no process id");
	end = parse_decimal(pid, INT_MAX, &number);
	if (!end || *end)
		return error_set(-EINVAL, "the status of a domain has an invalid process id");
	domain->pid = (pid_t)number;
	read_migration(domain, status);
	domain->ended = !number || !strcmp(state, "shutoff") || !strcmp(state, "crashed");
	return 0;
}

static int read_domain(struct domain_xml *domain, const xmlNode *node)
{
	int error;

	if (!node || !is_element(node, "domain"))
		return error_set(-EINVAL, "this XML does not describe a domain");
	error = read_name(domain, node);
	if (error)
		return error;
	read_metadata(domain, node);
	read_channels(domain, node);
	return 0;
}

static int read_root(struct domain_xml *domain, const xmlDoc *document)
{
	const xmlNode *root = xmlDocGetRootElement(document);
	int error;

	if (document->intSubset)
		return error_set(
			-EINVAL,
			"the XML of a domain has a document type, which libvirt does not write");
	if (!root || !is_element(root, "domstatus"))
		return read_domain(domain, root);
	error = read_state(domain, root);
	return error ? error : read_domain(domain, child(root, "domain"));
}

int domain_xml_read(struct domain_xml *domain, const void *text, size_t size)
{
	xmlDoc *document;
	int error;

	*domain = (struct domain_xml){ 0 };
	if (size > DOMAIN_XML_MAX)
		return error_set(-E2BIG, "the XML of a domain has more than %d bytes",
				 DOMAIN_XML_MAX);
	document = xmlReadMemory(text, (int)size, NULL, NULL, PARSE_OPTIONS);
	if (!document)
		return error_set(-EINVAL,
				 "cannot parse the XML of a domain: it is cut off or invalid");
	error = read_root(domain, document);
	xmlFreeDoc(document);
	return error;
}

int domain_xml_apply(const struct domain_xml *domain, struct domain_settings *settings)
{
	int error = *domain->wrong ? error_set(-EINVAL, "%s", domain->wrong) : 0;

	if (domain->profile && !error)
		settings->profile = true;
	for (size_t i = 0; i < domain->setting_count && !error; i++)
		error = settings_set(settings, domain->settings[i].key, domain->settings[i].value);
	return error;
}
