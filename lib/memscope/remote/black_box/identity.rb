# frozen_string_literal: true

module Memscope
  class BlackBox
    # Which process a box is of.
    # @api private
    module Identity
      # The variables in which deployments put the revision of the application.
      RELEASES = %w[KAMAL_VERSION HEROKU_SLUG_COMMIT RENDER_GIT_COMMIT GIT_SHA REVISION].freeze
      MAX_RELEASE = 100

      class << self
        def role
          return "sidekiq" if defined?(::Sidekiq) && ::Sidekiq.respond_to?(:server?) && ::Sidekiq.server?

          title || "process"
        end

        # @return [String, nil] "solid queue worker" of "solid-queue-worker(1.2.0): waiting", which Solid Queue sets
        def title = $PROGRAM_NAME[/\Asolid-queue-[\w-]+/]&.tr("-", " ")

        def read(role, index)
          root = Profile::Application.source_and_root&.last
          group = Cgroup.read
          { pid: Process.pid, parent: Process.ppid, **ProcessIdentity.current.to_h,
            role: [role, index].compact.join(" "), index: index, service: [root, role].compact.join(" "),
            release: release(root), ruby: RUBY_VERSION, memscope: VERSION, hostname: Socket.gethostname,
            command: File.basename($PROGRAM_NAME), **limit(group), cgroup_inode: inode(group), began_at: Clock.text }
        end

        def limit(group)
          { directory: group.directory, limit_bytes: group.limit_bytes, working_set_bytes: group.working_set_bytes,
            headroom_bytes: group.headroom_bytes, oom_kills: group.events&.fetch(:oom_kill, nil),
            pressure_full_avg10: group.pressure&.dig(:full, :avg10) }
        end

        private

        # A new container's group may have the path of the old one's.
        def inode(group) = SystemCall.attempt { File.stat(group.directory).ino if group.directory }

        def release(root)
          given = Configuration.effective(:release) || ENV.values_at(*RELEASES).compact.first || revision(root)
          given&.then { |text| Field.utf8(text.strip)[0, MAX_RELEASE] }
        end

        # The file that Capistrano writes.
        def revision(root) = SystemCall.attempt { File.read(File.join(root, "REVISION"), MAX_RELEASE) if root }
      end
    end
  end
end
