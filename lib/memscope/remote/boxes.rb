# frozen_string_literal: true

require_relative "sockets"
Memscope::Loading.units :Configuration, :Postmortem

module Memscope
  # The black boxes of a directory: those of processes that run, and of the last ones that ended.
  # @api private
  module Boxes
    autoload :Lives, "#{__dir__}/boxes/lives.rb"

    NAME = /\A\d+-\d+\.box\z/
    # Directories whose files survive a process, if the directory of the sockets is in memory.
    OTHERS = %w[/tmp /var/tmp].freeze
    # What a file's name ends with that says that somebody has told of the box.
    TOLD = ".told"
    # How many boxes of ended processes are kept.
    KEPT = 20

    class << self
      # Where boxes may be.
      def directories
        configured = Configuration.effective(:black_box)
        return [configured] if configured.is_a?(String)

        [Sockets.directory(Configuration.effective(:socket_directory)),
         *OTHERS.map { |parent| File.join(parent, "memscope-#{Process.euid}") }].uniq
      end

      # (see Memscope.postmortem)
      def postmortem(which = nil)
        allowed = which.nil? || which.is_a?(Integer) || (which.is_a?(String) && !which.include?("\0"))
        Field.refuse(:which, which, "nil, a path, a process ID", call: "Memscope.postmortem") unless allowed
        read(which).last
      end

      # @return [Array<Postmortem>] of the box, of the processes that had that pid, or of all that have ended, the last
      #   at the end
      # @raise [Unavailable] if the box cannot be read
      # @raise [Invalid] if it is not the box of a process
      # @raise [SystemCallError] if the directory cannot be read
      def read(which = nil, native: Native)
        path = which if which.is_a?(String)
        own = [box(path, native)] if path && !File.directory?(path)
        beside = all(*(own ? File.dirname(path) : path), native: native)
        meant = own || beside.select { |one| which.is_a?(Integer) ? one.identity.pid == which : !one.running? }
        meant.map { |one| Postmortem.of(one, others: beside) }.sort_by(&:last_seen_at)
      end

      # @return [Array<Postmortem::Box>] those that can be read, by default in the directories where boxes may be
      # @raise [SystemCallError] if a directory cannot be read
      def all(*from, native: Native)
        from = directories.select { |path| File.directory?(path) } if from.empty?
        readable(from.flat_map { |path| paths(path) }, native)
      end

      # @return [Postmortem, nil] of the running process that uses most memory
      def largest(directory, native: Native)
        running = all(directory, native: native).select(&:running?)
        running.map { |box| Postmortem.of(box, others: running) }.max_by { |one| one.rss_bytes.to_i }
      end

      # Tells of processes of a service that have ended without a word, each once, whoever looks first: in a line of the
      # log, and by ActiveSupport::Notifications, as death.memscope. Never raises.
      def tell(directory, service, native: Native)
        untold = readable(paths(directory).select { |path| untold?(path) }, native)
        silent = untold.select { |box| box.identity.service == service && !box.slots[:ending] && !box.running? }
        boxes = all(directory, native: native) if silent.any?
        silent.each { |box| announce(Postmortem.of(box, others: boxes)) if claim("#{box.path}#{TOLD}") }
      rescue StandardError
        nil # of the disk, or of the application's logger
      end

      # Removes boxes of processes of this user that are gone, but not the newest: also those of another memscope, whose
      # form this one cannot read.
      def sweep(directory, native: Native)
        paths = paths(directory)
        paths = paths.size > KEPT ? gone(paths, native)[...-KEPT].to_a : []
        notes = paths.product([TOLD, Postmortem::Box::ENDED]).map(&:join)
        File.unlink(*paths, *notes.select { |path| File.exist?(path) })
      rescue SystemCallError
        nil # another process sweeps too
      end

      # The file name of a process's box.
      def file_name(pid, started) = "#{pid}-#{started}.box"

      # Notes how the process of a box has ended: its status as of waitpid. Never raises.
      def note(name, status)
        path = directories.map { |directory| File.join(directory, name) }.find { |box| File.exist?(box) }
        File.write("#{path}#{Postmortem::Box::ENDED}", status, mode: "wx", perm: 0o600) if path && status >= 0
      rescue SystemCallError, Sockets::Refused
        nil # it is noted already, or the disk fails
      end

      # @param path [String] of a box
      # @return [Boolean] whether its process is there, by the name alone
      def there?(path)
        pid, started = File.basename(path).scan(/\d+/).map(&:to_i)
        ProcessIdentity.of(pid).started == started
      end

      private

      def paths(directory) = Dir.children(directory).grep(NAME).map { |name| File.join(directory, name) }

      def readable(paths, native)
        paths.filter_map do |path|
          box(path, native)
        rescue Unavailable, Invalid
          nil
        end
      end

      # Those of processes of this user that are gone, the newest last.
      def gone(paths, native)
        boxes = readable(paths, native).to_h { |box| [box.path, box] }
        gone = paths.select { |path| File.owned?(path) && !(boxes.key?(path) ? boxes[path].running? : held?(path)) }
        gone.sort_by { |path| boxes[path]&.written_at || Postmortem.milliseconds(File.mtime(path)) }
      end

      # By the name alone, since reading all boxes costs a new worker memory: of a process that seems gone.
      def untold?(path) = !there?(path) && !File.exist?("#{path}#{TOLD}")

      # Of a box that cannot be read. A process in another pid namespace holds the lock.
      def held?(path) = there?(path) || Postmortem::Box.locked?(path)

      # True for the first process that tries.
      def claim(path) = SystemCall.attempt { File.open(path, "wx", 0o600) { true } }

      def announce(death)
        line = "memscope: #{death.sentence}"
        logger = Configuration.effective(:logger)
        logger ? logger.warn(line) : $stderr.write("#{line}\n") # no warning, which -W0 would hide
        Notifications.tell(:death) { { postmortem: death } }
      end

      def box(path, native)
        body = native.read_black_box(path)
        raise Unavailable.new(:box_unread, path, body) unless body.is_a?(Hash)

        Postmortem::Box.new(path, body)
      end
    end
  end
end
