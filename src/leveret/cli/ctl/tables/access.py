"""Commands for users, permissions and virtual hosts."""

from __future__ import annotations

from typing import Final

from leveret.cli.ctl.exits import DATA, NO_USER, SOFTWARE, UNAVAILABLE
from leveret.cli.ctl.spec import AnswerTable, Option, PositionalArgument, Spec, arguments, columns
from leveret.control.refusal import BAD_REQUEST, NOT_FOUND

USERS: Final = "Users"
ACCESS: Final = "Access control"
VHOSTS: Final = "Virtual hosts"

USER: Final = arguments("username:name:users")
PASSWORD: Final = PositionalArgument("password", "password", "password", is_optional=True)
HASH: Final = Option("pre-hashed-password", "password_hash", metavar="hash")
ALGORITHM: Final = Option("hashing-algorithm", "hashing_algorithm", metavar="name")
PERMISSIONS: Final = columns("configure", "write", "read")
TOPICS: Final = columns("exchange", "write", "read")

HINT: Final = (
    "Done. Don't forget to grant the user permissions to some virtual hosts! "
    "See 'rabbitmqctl help set_permissions' to learn more."
)

SPECS: Final = (
    Spec(
        "add_user", USERS, "Add a user, without any permissions.",
        (*arguments("username:name"), PASSWORD), (HASH, ALGORITHM),
        banner='Adding user "{username}" ...', aside=HINT, exits={BAD_REQUEST: DATA},
    ),
    Spec(
        "authenticate_user", USERS, "Check a user's password.", (*USER, PASSWORD),
        banner='Authenticating user "{username}" ...', call="authenticate", show=lambda answer, given: "Success",
    ),
    Spec(
        "change_password", USERS, "Change a user's password.",
        (*USER, PositionalArgument("password", "password", "password", is_optional=True, missing_exit=SOFTWARE)),
        (HASH, ALGORITHM), banner='Changing password for user "{username}" ...',
        exits={NOT_FOUND: NO_USER, BAD_REQUEST: DATA},
    ),
    Spec(
        "clear_password", USERS, "Disable password login for a user.", USER,
        banner='Clearing password for user "{username}" ...', exits={NOT_FOUND: UNAVAILABLE},
    ),
    Spec(
        "delete_user", USERS, "Delete a user and all its permissions.", USER,
        banner='Deleting user "{username}" ...', exits={NOT_FOUND: NO_USER},
    ),
    Spec(
        "list_users", USERS, "List users and their tags.", banner="Listing users ...",
        show=AnswerTable(columns(user="name", tags="tags"), ("user", "tags")),
    ),
    Spec(
        "set_user_tags", USERS, "Replace the tags of a user.",
        (*USER, *arguments("tag:tags*")), banner='Setting tags for user "{username}" to [{tag}] ...',
        exits={NOT_FOUND: NO_USER},
    ),
    Spec(
        "hash_password", USERS, "Print the hash of a password in the format of definitions files.", (PASSWORD,),
        show=lambda answer, given: str(answer["password_hash"]), is_ours=True, exits={BAD_REQUEST: DATA},
    ),
    Spec(
        "set_permissions", ACCESS, "Set what a user may configure, write and read in a virtual host.",
        arguments("username:user:users conf:configure write read"), takes_vhost=True,
        banner='Setting permissions for user "{username}" in vhost "{vhost}" ...',
    ),
    Spec(
        "clear_permissions", ACCESS, "Remove a user's permissions in a virtual host.", arguments("username:user:users"),
        takes_vhost=True, banner='Clearing permissions for user "{username}" in vhost "{vhost}" ...',
    ),
    Spec(
        "list_permissions", ACCESS, "List the permissions in a virtual host.", takes_vhost=True,
        banner='Listing permissions for vhost "{vhost}" ...', exits={NOT_FOUND: DATA},
        show=AnswerTable((*columns("user"), *PERMISSIONS), ("user", "configure", "write", "read")),
    ),
    Spec(
        "list_user_permissions", ACCESS, "List the permissions of a user in all virtual hosts.",
        arguments("username:user:users"), banner='Listing permissions for user "{username}" ...',
        show=AnswerTable((*columns("vhost"), *PERMISSIONS), ("vhost", "configure", "write", "read")),
        exits={NOT_FOUND: UNAVAILABLE},
    ),
    Spec(
        "set_topic_permissions", ACCESS, "Set which routing keys a user may write and read on a topic exchange.",
        arguments("username:user:users exchange::exchanges write read"), takes_vhost=True,
        banner='Setting topic permissions on "{exchange}" for user "{username}" in vhost "{vhost}" ...',
    ),
    Spec(
        "clear_topic_permissions", ACCESS, "Remove a user's topic permissions: all routing keys are allowed again.",
        arguments("username:user:users exchange::exchanges?"), takes_vhost=True,
        banner='Clearing topic permissions{on} for user "{username}" in vhost "{vhost}" ...',
        words=lambda given: {"on": f' on "{given["exchange"]}"' if given["exchange"] else ""},
    ),
    Spec(
        "list_topic_permissions", ACCESS, "List the topic permissions in a virtual host.", takes_vhost=True,
        banner='Listing topic permissions for vhost "{vhost}" ...', exits={NOT_FOUND: DATA},
        show=AnswerTable((*columns("user"), *TOPICS), ("user", "exchange", "write", "read")),
    ),
    Spec(
        "list_user_topic_permissions", ACCESS, "List the topic permissions of a user in all virtual hosts.",
        arguments("username:user:users"), banner='Listing topic permissions for user "{username}" ...',
        show=AnswerTable((*columns("vhost"), *TOPICS), ("vhost", "exchange", "write", "read"), has_header=False),
        exits={NOT_FOUND: UNAVAILABLE},
    ),
    Spec(
        "add_vhost", VHOSTS, "Add a virtual host.", arguments("vhost:name"),
        (
            Option("description", "description", metavar="text"),
            Option("tags", "tags", "names", metavar="tags"),
            Option("default-queue-type", "", metavar="type"),
        ),
        banner='Adding vhost "{vhost}" ...',
    ),
    Spec(
        "delete_vhost", VHOSTS, "Delete a virtual host and everything in it.", arguments("vhost:name:vhosts"),
        banner='Deleting vhost "{vhost}" ...', exits={NOT_FOUND: DATA},
    ),
    Spec(
        "set_vhost_tags", VHOSTS, "Replace the tags of a virtual host.",
        arguments("vhost:name:vhosts tag:tags*"), banner='Setting tags for virtual host "{vhost}" to [{tag}] ...',
        exits={NOT_FOUND: DATA},
    ),
    Spec(
        "restart_vhost", VHOSTS, "No-op: virtual hosts run as long as the broker does.", takes_vhost=True,
        banner="Trying to restart vhost '{vhost}' on node '{node}' ...", call="check_vhost",
        show=lambda answer, given: f"Vhost '{given['vhost']}' is already running on node '{given['node']}'",
        exits={NOT_FOUND: SOFTWARE},
    ),
    Spec(
        "trace_on", VHOSTS, "Turn the firehose of a virtual host on.", takes_vhost=True,
        banner='Starting tracing for vhost "{vhost}" ...',
        show=lambda answer, given: f"Trace enabled for vhost {given['vhost']}", exits={NOT_FOUND: DATA},
    ),
    Spec(
        "trace_off", VHOSTS, "Turn the firehose of a virtual host off.", takes_vhost=True,
        banner='Stopping tracing for vhost "{vhost}" ...',
        show=lambda answer, given: f"Trace disabled for vhost {given['vhost']}", exits={NOT_FOUND: DATA},
    ),
)  # fmt: skip
